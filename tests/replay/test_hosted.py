"""Pages of the host in what the commands show: who has them, and which are lost."""

import attrs
import numpy as np
import pytest
import recorded_runs as made

from kvlife import Checker
from kvlife.events import Released, Resumed, Retracted
from kvlife.ledger import Ledger, PageState
from kvlife.replay.holding.lost import Lost

CONFIG = attrs.evolve(made.CONFIG, host_pages=16)
NONE = made.ints()


def retracted(rid, row, pages, backup):
    return Retracted(rid, row, made.ints(*backup), (made.ints(*pages),))


# Host pages 1 and 2 keep what r1 had on pages 1 and 2; r2 waits without a backup.
WAITING = [
    made.life_of("r1", 1, [1, 2])[:3],
    [retracted("r1", 1, [1, 2], [1, 2])],  # seq 3
    made.life_of("r2", 2, [3, 4])[:3],
    [Retracted("r2", 2, None, (made.ints(3, 4),))],  # seq 7
]
ABORTED = [Released("r1", None, "aborted", (NONE,), made.ints(1, 2))]  # seq 8
# The same without the host pages, and a life after it.
FORGOTTEN = [[Released("r1", None, "aborted", (NONE,), NONE)], made.life_of("r3", 3, [5, 6])]


def observed(path, facts, *, close=False):
    return made.observe(path, facts, config=CONFIG, checker=Checker(level="off"), close=close)


def test_a_backup_is_held_by_the_request_that_waits(tmp_path, capsys):
    """r1 holds two host pages since seq 3, r2 none; the state counts them beside the pools."""
    observed(tmp_path, WAITING)
    status, seen = made.answered(capsys, "leaks", tmp_path)
    assert (status, seen["lost_pages"], seen["num_holders"]) == (0, 0, 1)
    (holder,) = seen["holders"]
    assert (holder["what"], holder["pages"], holder["since_seq"]) == ("request r1", 2, 3)
    assert holder["since"]["event"] == "Retracted"
    counts = {"pages": 15, "free": 13, "kept": 2, "lost": 0}
    assert seen["host_pages"] == counts
    assert made.answered(capsys, "inspect", tmp_path)[1]["host_pages"] == counts
    for command in ("leaks", "inspect"):
        _, out, _ = made.ran(capsys, command, tmp_path)
        assert "the host" in out


def test_host_pages_that_are_given_back_leave_nothing(tmp_path, capsys):
    """Behind a release that names its backup all 15 are free, and nothing is lost."""
    observed(tmp_path, [*WAITING, ABORTED])
    status, seen = made.answered(capsys, "leaks", tmp_path)
    assert (status, seen["host_pages"]["free"], seen["num_holders"]) == (0, 15, 0)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (ABORTED, "aborted, while it waited without a row, 2 host pages given back"),
        (FORGOTTEN[0], "aborted, while it waited without a row"),
    ],
)
def test_a_request_tells_what_it_gave_back_of_its_backup(tmp_path, capsys, end, words):
    """r1 kept two host pages at seq 3; its release gives both back, or forgets them."""
    observed(tmp_path, [*WAITING, end])
    _, out, _ = made.ran(capsys, "request", tmp_path, "r1")
    (line,) = [line for line in out.splitlines() if "Released" in line]
    assert line.endswith(words)


@pytest.mark.parametrize(
    ("ending", "event"),
    [
        (FORGOTTEN[0], "Released"),
        ([Resumed("r1", 1, 0, 8, 0, 0, (), (NONE,), 0, (NONE,))], None),
    ],
    ids=["forgotten", "resumed"],
)
def test_a_resumption_gives_the_backup_back_by_itself(tmp_path, capsys, ending, event):
    """Only a release has to name its host pages: after a resumption none is lost."""
    observed(tmp_path, [*WAITING, ending])
    _, seen = made.answered(capsys, "leaks", tmp_path)
    assert [lot["lost_by"]["event"] for lot in seen["lost"]] == ([event] if event else [])


def test_host_pages_that_a_release_forgot_are_lost(tmp_path, capsys):
    """Taken at seq 3 by the retraction of r1, lost at seq 8, when it was aborted without them."""
    observed(tmp_path, [*WAITING, *FORGOTTEN], close=True)
    status, seen = made.answered(capsys, "leaks", tmp_path)
    assert (status, seen["lost_pages"]) == (1, 2)
    assert seen["host_pages"] == {"pages": 15, "free": 13, "kept": 0, "lost": 2}
    (lot,) = seen["lost"]
    assert (lot["space"], lot["pages"], lot["last_seq"]) == (None, [1, 2], 3)
    assert (lot["last_event"]["event"], lot["lost_by"]["seq"]) == ("Retracted", 8)
    assert lot["had_by"] == ["request r1"]
    status, out, _ = made.ran(capsys, "leaks", tmp_path)
    assert status == 1
    assert "pages 1-2 of the host: PRIVATE, and no backup of a waiting request names it" in out
    assert "lost by    Released at seq 8" in out
    assert "had by request r1" in out
    _, out, _ = made.ran(capsys, "inspect", tmp_path)
    assert "2 pages and 0 holders that nothing accounts for" in out


def test_host_pages_can_be_searched_for(tmp_path, capsys):
    """The retraction of r1, seq 3, is the first event after which 13 of 15 are free."""
    observed(tmp_path, WAITING)
    condition = "free_host_pages < 15 and host_pages == 16"
    status, seen = made.answered(capsys, "bisect", tmp_path, condition)
    assert (status, seen["seq"]) == (0, 3)


def test_without_host_pages_there_is_no_word_of_them(tmp_path, capsys):
    """A run of pools alone shows none, and a metric of them is refused."""
    made.observe(tmp_path / "log", [made.life_of("r1", 1, [1, 2])])
    _, seen = made.answered(capsys, "leaks", tmp_path / "log")
    assert seen["host_pages"] is None
    for command in ("leaks", "inspect"):
        _, out, _ = made.ran(capsys, command, tmp_path / "log")
        assert "the host" not in out
    status, out, err = made.ran(capsys, "bisect", tmp_path / "log", "free_host_pages < 15")
    assert (status, out) == (2, "")
    assert "have no pages of the host" in err


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda host: host.refs.__setitem__(1, 2), "more refs than backups"),
        (lambda host: host.refs.__setitem__(1, 0), "fewer refs than backups"),
        (lambda host: host.state.__setitem__(1, PageState.FREE), "FREE, and a backup"),
        (lambda host: host.state.__setitem__(5, PageState.PRIVATE), "PRIVATE, and no backup"),
        (lambda host: host.state.__setitem__(5, PageState.CACHED), "in no state that is"),
        (lambda host: host.refs.__setitem__(0, 1), "page 0"),
        (lambda host: host.refs.__setitem__(5, 1), "refs or pins on a page that is FREE"),
        (lambda host: host.pins.__setitem__(1, 1), "a pin on it"),
        (lambda host: host.free.take_head(host.free.head(1)), "FREE, and not in the free list"),
    ],
)
def test_columns_of_the_host_that_were_spoilt_are_told_apart(spoil, why):
    """Each column, changed by hand in a sound state, is found under its own words."""
    ledger = Ledger(CONFIG)
    for seq, event in enumerate(event for group in WAITING for event in group):
        ledger.apply(event, seq)
    assert not Lost(ledger).anything
    spoil(ledger.host)
    lost = Lost(ledger)
    assert why in " ".join(found.why for found in lost.pages)
    assert lost.num_pages == 1


def test_two_backups_on_one_host_page_are_found():
    """r2 keeps what it has on host pages 2 and 3, and 2 is r1's."""
    ledger = Ledger(CONFIG)
    facts = [*WAITING[:3], [retracted("r2", 2, [3, 4], [2, 3])]]
    for seq, event in enumerate(event for group in facts for event in group):
        ledger.apply(event, seq)
    assert [(found.pages.tolist(), found.space_idx) for found in Lost(ledger).pages] == [
        ([2], None)
    ]
    assert np.count_nonzero(ledger.host.state == PageState.PRIVATE) == 3


def test_a_violation_tells_who_took_the_host_page(tmp_path, capsys):
    """r2 keeps what it has on host page 2, which r1's retraction took at seq 3."""
    observed(tmp_path, [*WAITING[:3], [retracted("r2", 2, [3, 4], [2, 3])]])
    status, out, _ = made.ran(capsys, "replay", tmp_path)
    assert status == 1
    assert (
        "seq 3  step 0  Retracted: page 2 of the host: FREE -> PRIVATE, refs 0 -> 1, for the backup"
        " of request r1"
    ) in out


def test_a_forgotten_backup_is_told_page_by_page(tmp_path, capsys):
    """r1 is aborted without its host pages 1 and 2: both are told from where they were taken."""
    observed(tmp_path, [*WAITING, *FORGOTTEN])
    status, seen = made.answered(capsys, "replay", tmp_path)
    assert status == 1
    told = [(link["seq"], link["where"]) for link in seen["chain"]]
    assert told == [(3, "page 1 of the host"), (3, "page 2 of the host"), (8, "refs-balance")]
