"""Digests of contents in a log: what each command makes of them, and of a run that they ended."""

import json

import numpy as np
import pytest
from recorded_runs import (
    CONFIG,
    admitted,
    allocated,
    answered,
    committed,
    ints,
    life_of,
    observe,
    ran,
    released,
)

from kvlife import CacheGroup, Checker, InvariantViolation, LogWriter, Observer, PoolConfig
from kvlife.events import Digested, Violated
from kvlife.log import open_run
from kvlife.pools import DeviceFinding, Pools


def digested(*pages, salt=0):
    digests = np.array([0xABC0 + page + salt for page in pages], np.uint64)
    digests.setflags(write=False)
    return Digested(0, ints(*pages), digests)


FACTS = [[admitted("r1", 1)], [allocated([1], [8], [4, 5])], [committed([1], [8])]]
END = [[released("r1", 1, [4, 5])]]


class Accusing(Pools):
    """Pools that find the content of page 4 changed when a request lets it go."""

    checks = ("content-unchanged",)

    def __init__(self):
        self.found = []

    def apply(self, event, _change, seq):
        if type(event).__name__ == "Released":
            evidence = {"why": "it is another", "pages": [4], "space": "full"}
            self.found.append(
                DeviceFinding(invariant="content-unchanged", seq=seq, evidence=evidence)
            )

    def drain(self, *, wait=False):
        found, self.found = self.found, []
        return found


@pytest.fixture
def log(tmp_path):
    observe(tmp_path / "log", [*FACTS, [digested(4, 5)], "snapshot", *END])
    return tmp_path / "log"


def test_the_log_command_shows_and_chooses_them(log, capsys):
    """By kind, and by a page that they name."""
    status, out, _ = ran(capsys, "log", log, "--kind", "Digested")
    assert status == 0
    assert "Digested group 0, pages 4-5, digests 000000000000abc4 000000000000abc5" in out
    _, lines, _ = ran(capsys, "log", log, "--page", "5", "--json")
    kinds = [json.loads(line)["event"] for line in lines.splitlines()]
    assert kinds == ["Allocated", "Digested", "Released"]


@pytest.mark.parametrize("more", [(), ("--all",)])
def test_the_life_of_a_page_has_its_digest(log, capsys, more):
    """Where the content became complete, before and behind a snapshot alike."""
    status, told = answered(capsys, "page", log, 5, *more)
    assert status == 0
    touches = [(touch["event"], touch["text"]) for touch in told["touches"]]
    assert touches[1] == ("Digested", "content complete, digest 000000000000abc5")
    assert [kind for kind, _ in touches] == ["Allocated", "Digested", "Released"]


def test_a_page_in_use_has_a_digest_that_came_behind_a_snapshot(tmp_path, capsys):
    """The state does not know of it, and the log does."""
    observe(tmp_path / "log", [*FACTS, "snapshot", [digested(4)], "snapshot"], close=False)
    _, told = answered(capsys, "page", tmp_path / "log", 4)
    assert [touch["event"] for touch in told["touches"]] == ["Allocated", "Digested"]
    _, told = answered(capsys, "page", tmp_path / "log", 5)
    assert [touch["event"] for touch in told["touches"]] == ["Allocated"]


def test_a_digest_of_another_group_is_none_of_the_page(tmp_path, capsys):
    """Page 4 of one space is not page 4 of the other."""
    config = PoolConfig(
        page_size=4, num_pages=32, max_requests=4, max_context_len=64,
        groups=(CacheGroup("full"), CacheGroup("swa", window=8)),
    )  # fmt: skip
    digests = np.array([7], np.uint64)
    observe(tmp_path / "log", [[Digested(1, ints(4), digests)]], config=config)
    _, told = answered(capsys, "page", tmp_path / "log", 4, "--all")
    assert told["touches"] == []
    _, told = answered(capsys, "page", tmp_path / "log", 4, "--group", "swa", "--all")
    assert [touch["text"] for touch in told["touches"]] == [
        "content complete, digest 0000000000000007"
    ]


def written(path, salt, rank=0):
    """A run of one rank of two."""
    writer = LogWriter(path)
    observer = Observer(CONFIG, log=writer, clock=lambda: 0, group="g", rank=rank, world_size=2)
    for group in [*FACTS, [digested(4, 5, salt=salt)], *END]:
        observer.observe(*group)
    observer.close()
    return path


def test_ranks_hold_other_heads(tmp_path, capsys):
    """Between ranks digests are no difference; between runs of one rank they are."""
    logs = [
        written(tmp_path / name, salt, rank)
        for name, salt, rank in (("a", 0, 0), ("b", 16, 1), ("c", 16, 0))
    ]
    status, told = answered(capsys, "diff", logs[0], logs[1])
    assert (status, told["differs"]) == (0, False)
    status, out, _ = ran(capsys, "diff", logs[0], logs[2])
    assert status == 1
    assert "digests[0] and 1 more: A 000000000000abc4, B 000000000000abd4" in out
    status, _, _ = ran(capsys, "diff", logs[0], logs[2], "--ignore", "Digested.digests")
    assert status == 0


def test_a_log_under_aliases_keeps_its_digests_to_itself(capsys, tmp_path):
    """They say something of content, and so they are others there."""
    log = tmp_path / "log"
    observe(log, [*FACTS, [digested(4, 5)], *END])
    pack = tmp_path / "log.kvpack"
    assert ran(capsys, "pack", log, "-o", pack, "--redact")[0] == 0
    before, after = (
        next(item.event for item in open_run(path).events() if isinstance(item.event, Digested))
        for path in (log, pack)
    )
    assert after.pages.tolist() == before.pages.tolist()
    assert after.digests.size == 2
    assert not set(after.digests.tolist()) & set(before.digests.tolist())


def test_a_program_cut_down_has_no_digests(tmp_path, capsys):
    """They would be of contents that nobody writes any more."""
    fault = [released("r2", 2, [6])]
    observe(tmp_path / "log", [*FACTS, [digested(4, 5)], life_of("r3", 3, [7, 8]), fault])
    output = tmp_path / "small"
    status, out, err = ran(capsys, "shrink", tmp_path / "log", "-o", output)
    assert status == 0, out + err
    kinds = [type(item.event) for item in open_run(output).events()]
    assert Digested not in kinds


def test_a_run_that_contents_ended_is_told_as_one(tmp_path, capsys):
    """A replay has no contents, and says so; so does shrink; the state is that of the end."""
    observer = Observer(
        CONFIG, log=LogWriter(tmp_path / "log"), pools=Accusing(), checker=Checker(),
        clock=lambda: 0,
    )  # fmt: skip
    for group in FACTS:
        observer.observe(*group)
    with pytest.raises(InvariantViolation, match="content-unchanged broken at seq 3"):
        observer.observe(*END[0])
    run = open_run(tmp_path / "log")
    assert isinstance([item.event for item in run.events()][-1], Violated)
    status, out, _ = ran(capsys, "replay", tmp_path / "log")
    assert status == 1
    told = " ".join(out.split())
    assert "content-unchanged" in told
    assert (
        "the run itself found this, a replay cannot: no device pools that check contents are"
        " attached" in told
    )
    status, _, err = ran(capsys, "shrink", tmp_path / "log", "-o", tmp_path / "small")
    assert status == 2
    assert "recorded content-unchanged at seq 3, which no log shows by itself" in err


class AccusingLate(Accusing):
    """As a device does: the finding comes with a later event."""

    def drain(self, *, wait=False):
        if not self.found or self.later < 2:
            self.later += bool(self.found)
            return []
        return super().drain(wait=wait)

    later = 0


def test_a_finding_that_came_late_ends_the_run_where_it_came(tmp_path, capsys):
    """The state is that of the end, with all that was applied until then."""
    observer = Observer(
        CONFIG, log=LogWriter(tmp_path / "log"), pools=AccusingLate(), checker=Checker(),
        clock=lambda: 0,
    )  # fmt: skip
    for group in [*FACTS, *END, [admitted("r2", 2)]]:
        observer.observe(*group)
    with pytest.raises(InvariantViolation, match="content-unchanged broken at seq 3"):
        observer.observe(allocated([2], [4], [6]))
    log = open_run(tmp_path / "log")
    assert [item.event.seq for item in log.events(6)] == [3]
    status, told = answered(capsys, "inspect", tmp_path / "log")
    assert (status, told["seq"]) == (0, 5)
    (note,) = told["notes"]
    assert note.endswith("event 3, which ended the run: found when the events up to 5 were applied")
    status, told = answered(capsys, "replay", tmp_path / "log")
    assert (status, told["digest_ok"]) == (1, True)
    assert [(found["id"], found["seq"]) for found in told["violations"]] == [
        ("content-unchanged", 3)
    ]
    _, told = answered(capsys, "page", tmp_path / "log", 6)
    assert [touch["event"] for touch in told["touches"]] == ["Allocated"]
