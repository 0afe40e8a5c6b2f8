"""`kvlife diff`: where logs part, in which fields and states, and whether they meet again."""

import json

import attrs
import numpy as np
import pytest
import recorded_runs as made

from kvlife import LogWriter, PoolConfig
from kvlife.events import BY_CODE, Allocated, Marked, Retracted, StepDispatched
from kvlife.log import RunHeader, open_run
from kvlife.replay.cli import main

LIVES = [made.life_of(f"r{n}", 1, [1, 2]) for n in range(4)]
HEADER = RunHeader(config=made.CONFIG)


def write(path, groups, *, header=HEADER, close=True, step=0, time_ns=0):
    """A log of these groups of events, as they are."""
    writer = LogWriter(path, compress=False, snapshot_every_bytes=1 << 30)
    writer.start(header)
    seq = 0
    for group in groups:
        writer.append(seq, step, time_ns, group)
        seq += len(group)
    if close:
        writer.close(0)
    else:
        writer.wait()
    return writer


def compared(capsys, *arguments):
    """Run `kvlife diff --json`; its exit status and its one comparison."""
    status = main(["diff", *map(str, arguments), "--json"])
    out, err = capsys.readouterr()
    assert not err
    seen = json.loads(out)
    assert seen["differs"] == (status == 1)
    (comparison,) = seen["comparisons"]
    return status, comparison


def shown(capsys, *arguments):
    status = main(["diff", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


def test_logs_that_differ_in_time_alone_are_the_same(tmp_path, capsys):
    """The ranks of one group write the same events, at other times."""
    ranks = [attrs.evolve(HEADER, group="g", rank=rank, world_size=2) for rank in (0, 1)]
    write(tmp_path / "0", LIVES, header=ranks[0], time_ns=5)
    write(tmp_path / "1", LIVES, header=ranks[1], time_ns=7)
    status, seen = compared(capsys, tmp_path / "0", tmp_path / "1")
    assert (status, seen["first"], seen["num_same"], seen["header"]) == (0, None, 16, [])
    status, out, _ = shown(capsys, tmp_path / "0", tmp_path / "1")
    assert status == 0
    assert "the same    16 events in every field but the time" in out


def test_a_field_that_differs_is_named_with_its_index(tmp_path, capsys):
    """Rows 1 and 2 get pages 1, 2 and 3, 4: in B the last is 5. The states differ behind it."""
    bound = [made.admitted("a", 1), made.admitted("b", 2)]
    for name, page in (("a", 4), ("b", 5)):
        write(tmp_path / name, [bound, [made.allocated([1, 2], [8, 8], [1, 2, 3, page])], LIVES[0]])
    status, seen = compared(capsys, tmp_path / "a", tmp_path / "b")
    assert status == 1
    assert (seen["first"]["left_seqs"], seen["first"]["right_seqs"]) == ([2, 3], [2, 3])
    assert seen["fields"] == [{"field": "pages[3]", "left": "4", "right": "5"}]
    assert seen["changed"] == {"Allocated": 1}
    assert seen["state_before"]["counts"] == {}
    assert seen["state_after"]["counts"] == {"pages": 2, "rows": 1}
    assert seen["state_after"]["entries"] == [
        {"what": "page 4 of full", "left": "PRIVATE, refs 1", "right": "FREE"},
        {"what": "page 5 of full", "left": "FREE", "right": "PRIVATE, refs 1"},
        {
            "what": "row 2 (request b)",
            "left": "pages of full 3-4",
            "right": "pages of full 3 5",
        },
    ]
    assert (seen["together_again"], seen["num_together"]) == ([3, 3], 4)


def test_lengths_are_told_by_their_row(tmp_path, capsys):
    """The entry of row 2 differs, by one token; so does the step of the group."""
    bound = [made.admitted("a", 1), made.admitted("b", 2)]
    write(tmp_path / "a", [bound, [made.allocated([1, 2], [4, 4], [1, 2])]])
    write(tmp_path / "b", [bound, [made.allocated([1, 2], [4, 3], [1, 2])]], step=0)
    _, seen = compared(capsys, tmp_path / "a", tmp_path / "b")
    assert seen["fields"] == [{"field": "allocated_len[1] (row 2)", "left": "4", "right": "3"}]
    write(tmp_path / "c", [bound, [made.allocated([1, 2], [4, 4], [1, 2])]], step=3)
    _, seen = compared(capsys, tmp_path / "a", tmp_path / "c")
    assert seen["fields"] == [{"field": "step", "left": "0", "right": "3"}]
    assert seen["num_partings"] == 3
    status, _ = compared(capsys, tmp_path / "a", tmp_path / "c", "--ignore", "step")
    assert status == 0


def test_an_event_that_one_log_lacks_is_found_and_the_rest_meets_again(tmp_path, capsys):
    """B has no commit of r1, seq 6: from A's 7 and B's 6 on they are the same, 9 events."""
    facts = [event for life in LIVES for event in life]
    write(tmp_path / "a", [[event] for event in facts])
    write(tmp_path / "b", [[event] for event in facts[:6] + facts[7:]])
    status, seen = compared(capsys, tmp_path / "a", tmp_path / "b")
    assert (status, seen["num_partings"], seen["num_same"]) == (1, 1, 15)
    assert (seen["first"]["num_left"], seen["first"]["num_right"]) == (1, 0)
    assert (seen["only_left"], seen["only_right"], seen["changed"]) == ({"Committed": 1}, {}, {})
    assert (seen["together_again"], seen["num_together"]) == ([7, 6], 9)
    # The commit took row 1 from 0 to 8 tokens; r1's release forgets that.
    assert seen["state_after"]["entries"] == [
        {"what": "row 1 (request r1)", "left": "committed 8", "right": "committed 0"}
    ]
    assert seen["state_at_end"]["counts"] == {}
    _, out, _ = shown(capsys, tmp_path / "a", tmp_path / "b")
    assert "different   from A seq 6 on: A has 1 event that B has not" in out
    assert "together    again from A seq 7, B seq 6 on: the last 9 events are the same" in out


def test_a_log_that_ends_sooner_is_different(tmp_path, capsys):
    """A ends with r1's life, B goes on with r2's and r3's."""
    write(tmp_path / "a", LIVES[:2])
    write(tmp_path / "b", LIVES)
    status, seen = compared(capsys, tmp_path / "a", tmp_path / "b")
    assert (status, seen["num_same"], seen["num_partings"]) == (1, 8, 1)
    assert seen["first"]["left"] is None
    assert seen["first"]["right"]["seq"] == 8
    assert seen["only_right"] == {"Admitted": 2, "Allocated": 2, "Committed": 2, "Released": 2}
    assert seen["together_again"] is None
    assert seen["next_seqs"] == [8, 16]
    _, out, _ = shown(capsys, tmp_path / "a", tmp_path / "b")
    assert "where A ends and the other goes on" in out
    assert "A         the log ends" in out


def test_a_log_that_is_being_written_may_be_shorter(tmp_path, capsys):
    """What its writer has not written yet is no difference; the note says so."""
    writer = write(tmp_path / "a", LIVES[:2], close=False)
    write(tmp_path / "b", LIVES)
    status, seen = compared(capsys, tmp_path / "a", tmp_path / "b")
    assert (status, seen["num_same"]) == (0, 8)
    assert any("another process is writing this run" in note for note in seen["notes"])
    writer.close(0)


def test_headers_of_ranks_may_differ_in_rank_alone(tmp_path, capsys):
    """Another policy on one rank of a group counts; between two runs it is only told."""
    rank = attrs.evolve(HEADER, group="g", world_size=2, policies={"ladder-order": "raise"})
    write(tmp_path / "0", LIVES, header=rank)
    other = attrs.evolve(rank, rank=1, policies={"ladder-order": "collect"})
    write(tmp_path / "1", LIVES, header=other)
    told = {"field": "policies.ladder-order", "left": "raise", "right": "collect"}
    status, seen = compared(capsys, tmp_path / "0", tmp_path / "1")
    assert (status, seen["header"]) == (1, [told | {"counts": True}])
    write(tmp_path / "2", LIVES, header=attrs.evolve(other, group="", rank=0))
    status, seen = compared(capsys, tmp_path / "0", tmp_path / "2")
    assert (status, seen["first"]) == (0, None)
    assert told | {"counts": False} in seen["header"]


def test_pools_of_other_sizes_are_compared_as_far_as_they_go(tmp_path, capsys):
    """40 pages against 32, and 64 tokens against 32: the events are the same, the pools are not."""
    larger = PoolConfig(page_size=4, num_pages=40, max_requests=6, max_context_len=32)
    write(tmp_path / "a", LIVES)
    write(tmp_path / "b", [*LIVES, [made.admitted("r9", 5)]], header=RunHeader(config=larger))
    status, seen = compared(capsys, tmp_path / "a", tmp_path / "b")
    assert status == 1
    fields = {found["field"] for found in seen["header"] if found["counts"]}
    assert fields == {"config.num_pages", "config.max_requests", "config.max_context_len"}
    assert seen["num_same"] == 16
    assert seen["state_at_end"]["counts"] == {"pages": 8, "rows": 1, "requests": 1}


def test_each_further_log_is_held_against_the_first(tmp_path, capsys):
    """Of three, the second is the same and the third is not."""
    write(tmp_path / "a", LIVES)
    write(tmp_path / "b", LIVES)
    write(tmp_path / "c", LIVES[:3])
    paths = [str(tmp_path / name) for name in "abc"]
    assert main(["diff", *paths, "--json"]) == 1
    seen = json.loads(capsys.readouterr().out)
    assert [each["differs"] for each in seen["comparisons"]] == [False, True]
    assert main(["diff", *paths]) == 1
    assert capsys.readouterr().out.count("A           ") == 2


@pytest.mark.parametrize("ignored", ["Marked", "text", "Marked.text"])
def test_what_is_ignored_is_no_difference(tmp_path, capsys, ignored):
    """Notes with other texts: by kind, by field, or by the field of the kind."""
    for name in ("a", "b"):
        write(tmp_path / name, [LIVES[0], [Marked(f"of {name}", False)], LIVES[1]])
    status, _ = compared(capsys, tmp_path / "a", tmp_path / "b")
    assert status == 1
    status, seen = compared(capsys, tmp_path / "a", tmp_path / "b", "--ignore", ignored)
    assert (status, seen["num_same"]) == (0, 8 if ignored == "Marked" else 9)


@pytest.mark.parametrize(
    ("backup", "told"), [([], "empty"), ([1], "1"), ([1, 2], "1-2")], ids=["empty", "one", "two"]
)
def test_pages_on_one_side_alone_are_a_difference(tmp_path, capsys, backup, told):
    """A field that is an array in one log and nothing in the other: here, a retraction's backup."""
    config = attrs.evolve(made.CONFIG, host_pages=8)
    pages = (made.ints(1, 2),)
    for name, kept in (("a", None), ("b", made.ints(*backup))):
        facts = [*LIVES[0][:3], Retracted("r0", 1, kept, pages)]
        write(tmp_path / name, [facts], header=RunHeader(config=config))
    status, seen = compared(capsys, tmp_path / "a", tmp_path / "b")
    assert (status, seen["first"]["left_seqs"]) == (1, [3, 4])
    assert seen["fields"] == [{"field": "backup", "left": "none", "right": told}]


def test_a_kind_that_only_one_log_has_can_be_ignored(tmp_path, capsys):
    """Without its notes A is B, though the seqs differ from the first note on."""
    write(tmp_path / "a", [LIVES[0], [Marked("half", False)], LIVES[1]])
    write(tmp_path / "b", LIVES[:2])
    status, _ = compared(capsys, tmp_path / "a", tmp_path / "b", "--ignore", "Marked")
    assert status == 0
    status, _, err = shown(capsys, tmp_path / "a", tmp_path / "b", "--ignore", "Markd")
    assert status == 2
    assert "Marked" in err


def test_steps_of_one_batch_are_told_apart_by_what_they_hold(tmp_path, capsys):
    """All steps have the same rows; the one that B lacks is found, by its lengths and number."""

    def steps(missing):
        yield [made.admitted("r", 1, prompt_len=40)]
        for number in range(30):
            if number == missing:
                continue
            pages = [1 + number // 4] if number % 4 == 0 else []
            yield [made.allocated([1], [number + 1], pages)]
            yield [StepDispatched(number, made.ints(1))]
            yield [made.committed([1], [number + 1])]

    write(tmp_path / "a", steps(None))
    write(tmp_path / "b", steps(13))
    _, seen = compared(capsys, tmp_path / "a", tmp_path / "b")
    assert seen["first"]["left_seqs"] == [40, 43]
    assert seen["only_left"] == {"Allocated": 1, "StepDispatched": 1, "Committed": 1}
    assert (seen["only_right"], seen["changed"], seen["num_partings"]) == ({}, {}, 1)


def test_damage_leaves_what_was_compared_before_it(tmp_path, capsys):
    """A difference before it is told with a note; without one the log is unusable."""
    for name, text in (("a", "one"), ("b", "two")):
        write(tmp_path / name, [[Marked(text, False)], LIVES[0], LIVES[1], LIVES[2]])
    spoil(tmp_path / "b", b"r1")
    status, _, err = shown(capsys, tmp_path / "a", tmp_path / "b", "--ignore", "text")
    assert status == 2
    assert "--salvage" in err


def test_events_that_one_log_misses_are_not_compared(tmp_path, capsys):
    """Under salvage the hole in B is stepped over in A as well, and named."""
    facts = [LIVES[0], "snapshot", LIVES[1], "snapshot", LIVES[2]]
    for name in ("a", "b"):
        writer = LogWriter(tmp_path / name, compress=False, snapshot_every_bytes=1 << 20)
        made.observe(tmp_path / name, facts, writer=writer)
    spoil(tmp_path / "b", b"r1")
    status, _, err = shown(capsys, tmp_path / "a", tmp_path / "b")
    assert status == 2
    assert "--salvage" in err
    for pair in (("a", "b"), ("b", "a")):
        status, seen = compared(capsys, *(tmp_path / name for name in pair), "--salvage")
        assert (status, seen["num_same"]) == (0, 8)
        assert any("events [4, 8) are missing" in note for note in seen["notes"])


def spoil(root, text):
    (path,) = root.rglob("*.seg")
    content = bytearray(path.read_bytes())
    content[content.index(text)] ^= 0x40
    path.write_bytes(content)


def test_histories_that_begin_later_are_compared_from_there(tmp_path, capsys):
    """B's first segment is gone: its states are compared from its first snapshot on."""
    made.crowded_engine(tmp_path / "a", seed=3, num_steps=200)
    made.crowded_engine(tmp_path / "b", seed=3, num_steps=200)
    segments = sorted((tmp_path / "b").rglob("*.seg*"))
    assert len(segments) > 1
    segments[0].unlink()
    begins = open_run(tmp_path / "b").begins_at
    assert begins > 0
    status, seen = compared(capsys, tmp_path / "a", tmp_path / "b")
    assert (status, seen["from_seq"]) == (0, begins)
    assert seen["state_at_start"]["counts"] == {}
    assert seen["num_same"] == open_run(tmp_path / "a").next_seq - begins


def test_a_second_log_must_be_named(tmp_path, capsys):
    """One log cannot be compared; a log that is not there cannot either."""
    write(tmp_path / "a", LIVES)
    for arguments in ((tmp_path / "a",), (tmp_path / "a", tmp_path / "none")):
        status, out, err = shown(capsys, *arguments)
        assert (status, out) == (2, "")
        assert err.startswith("kvlife: ")


@pytest.mark.soak
def test_whatever_is_left_out_is_what_is_found(tmp_path, capsys, seed):
    """From a run of the engine a few events in a row are left out, at a random place."""
    made.crowded_engine(tmp_path / "a", seed=seed, num_steps=150)
    run = open_run(tmp_path / "a")
    events = list(run.events())
    rng = np.random.default_rng(seed)
    first = int(rng.integers(len(events) - 8))
    last = first + int(rng.integers(1, 8))
    kept = [[item.event] for item in events if not first <= item.seq < last]
    write(tmp_path / "b", kept, header=run.header)
    status, seen = compared(capsys, tmp_path / "a", tmp_path / "b", "--ignore", "step")
    assert status == 1
    # Events that are the same as those left out may be taken for them.
    assert seen["first"]["left_seqs"][0] >= first
    num_left, num_right = (sum(seen[name].values()) for name in ("only_left", "only_right"))
    assert num_left - num_right == last - first
    assert seen["num_same"] + num_left + sum(seen["changed"].values()) == len(events)
    if not seen["changed"] and not num_right:
        assert seen["num_together"] == len(events) - seen["together_again"][0]


def test_two_workloads_that_share_little_are_counted(tmp_path, capsys):
    """Every event of either is told to be the same, changed, or only there."""
    for name, seed in (("a", 1), ("b", 2)):
        made.crowded_engine(tmp_path / name, seed=seed, num_steps=400)
    status, seen = compared(capsys, tmp_path / "a", tmp_path / "b")
    assert status == 1
    both = seen["num_same"] + sum(seen["changed"].values())
    for name, side in (("only_left", 0), ("only_right", 1)):
        assert both + sum(seen[name].values()) == seen["next_seqs"][side]


def test_the_words_of_an_event_are_short(tmp_path, capsys):
    """Long lists are cut, and control characters of an id are written as escapes."""
    hostile = "r\x1b[2J\n"
    for name, last in (("a", 12), ("b", 13)):
        facts = [made.admitted(hostile, 1, prompt_len=40)]
        facts.append(Allocated(made.ints(1), made.ints(40), (made.ints(*range(1, 10), last),)))
        write(tmp_path / name, [facts])
    status, out, _ = shown(capsys, tmp_path / "a", tmp_path / "b")
    assert status == 1
    assert "\x1b" not in out
    assert "pages 1-9 12" in out
    assert "row 1 (request r\\x1b[2J\\n)" in out


def test_of_an_unknown_kind_no_more_is_compared_than_can_be(tmp_path, capsys, monkeypatch):
    """Notes, to a version without notes: those of one size pass, which is said; others differ."""
    for name, text in (("a", "one"), ("b", "two"), ("c", "three")):
        write(tmp_path / name, [LIVES[0], [Marked(text, False)], LIVES[1]])
    monkeypatch.delitem(BY_CODE, Marked.CODE)
    status, seen = compared(capsys, tmp_path / "a", tmp_path / "b")
    assert (status, seen["num_same"]) == (0, 9)
    assert any("no content" in note for note in seen["notes"])
    status, seen = compared(capsys, tmp_path / "a", tmp_path / "c")
    assert (status, seen["changed"]) == (1, {f"unknown kind {Marked.CODE}": 1})
    assert seen["fields"][0]["field"] == "size"
    assert any("not known" in note or "does not know" in note for note in seen["notes"])


def test_what_two_logs_have_more_of_is_summed_up(tmp_path, capsys):
    """A aborts r1 in place of its commit and release, B does not: 1 commit more is B's."""
    other = [*LIVES[1][:2], made.released("r1", 1, [1, 2], "aborted")]
    write(tmp_path / "a", [LIVES[0], other, LIVES[2], LIVES[3]])
    write(tmp_path / "b", LIVES)
    status, seen = compared(capsys, tmp_path / "a", tmp_path / "b")
    assert (status, seen["num_partings"]) == (1, 1)
    assert seen["only_left"] == {"Released": 1}
    assert seen["only_right"] == {"Committed": 1, "Released": 1}
    assert seen["together_again"] == [7, 8]
    _, out, _ = shown(capsys, tmp_path / "a", tmp_path / "b")
    assert "more in B   1 Committed" in out
