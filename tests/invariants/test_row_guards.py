"""Guards over lengths and holders: for each, a fault that it names first and a sound neighbour."""

import pytest
from short_events import (
    Bench,
    admit,
    allocate,
    close_session,
    commit,
    dispatch,
    evict_window,
    full,
    ints,
    protect,
    release,
    restore,
    resume,
    retract,
    roll_back,
    save,
    settle,
    windowed,
)

from kvlife.events import Committed

# r1 on row 1: 8 tokens prompt, 6 of them allocated on pages 1 and 2 and committed.
RUNNING = (admit("r1", 1, prompt=8), allocate(1, 6, [1, 2]), commit(1, 6))
# Its first page is published: the ladder is 4/6/6.
PUBLISHED = (*RUNNING, protect(1, 4, [11]))
# Session s1 idles on row 1 after its first turn: the ladder is 4/6/6.
SAVED = (*PUBLISHED, save("s1", "r1", 1, 6))


def first(bench, *events):
    found = bench.do(*events)
    return None if found is None else found.id


@pytest.mark.parametrize(
    "faulty",
    [
        allocate(1, 65, range(3, 18)),
        commit(1, 7),
        roll_back(1, 5, 6),
        roll_back(1, 3, 3, [2]),
        protect(1, 8, [12]),
        save("s1", "r1", 1, 9),
        save("s1", "r1", 1, 2, [2]),
        admit("r2", 2, 68, [1]),
        admit("r2", 2, floor=-1),
        admit("r2", 2, prompt=-1),
    ],
    ids=lambda event: f"{type(event).__name__}",
)
def test_ladder_order(faulty):
    """A length that passes its neighbour on the ladder, or the row's capacity, is named first."""
    assert first(Bench(full(num_pages=20)), *PUBLISHED, faulty) == "ladder-order"


def test_ladder_order_at_its_rungs():
    """Lengths that stand on the rung above them are in order: capacity, allocated, committed."""
    bench = Bench(full(num_pages=20))
    assert first(bench, *PUBLISHED, allocate(1, 64, range(3, 17)), commit(1, 64)) is None
    assert first(bench, protect(1, 64, range(20, 35))) is None


def test_a_negative_cursor_breaks_ladder_order():
    """A window cursor below 0 is no position."""
    bench = Bench(windowed())
    setup = (
        admit("r1", 1, 0, [[], []], cursors=[0]),
        allocate(1, 6, [[1, 2], [1, 2]]),
        commit(1, 6),
    )
    assert first(bench, *setup, evict_window(1, 1, -4)) == "ladder-order"


def test_what_was_out_of_order_is_charged_once():
    """After a fault that was let pass, an event that makes nothing worse is not blamed for it."""
    bench = Bench(full())
    assert first(bench, *RUNNING, commit(1, 7)) == "ladder-order"
    assert first(bench, allocate(1, 6)) is None


def test_protected_aligned():
    """A published length in the middle of a page is named; a whole number of pages is not."""
    bench = Bench(full())
    assert first(bench, *RUNNING, protect(1, 5, [11])) == "protected-aligned"
    assert first(Bench(full()), *RUNNING, protect(1, 4, [11])) is None
    assert first(Bench(full()), *PUBLISHED, release("r1", 1, [1, 2]), admit("r2", 2, 3, [1])) == (
        "protected-aligned"
    )


def test_protected_monotone():
    """A published length goes back by no event of its own; to repeat it is nothing."""
    assert first(Bench(full()), *PUBLISHED, protect(1, 0, [])) == "protected-monotone"
    assert first(Bench(full()), *PUBLISHED, protect(1, 4, [])) is None


def test_a_rewind_lowers_protected_to_whole_pages():
    """A session restored below protected takes it along, where whole pages are left."""
    setup = (*RUNNING, allocate(1, 12, [3]), commit(1, 12), protect(1, 8, [11, 12]))
    saved = (*setup, save("s1", "r1", 1, 12))
    assert first(Bench(full()), *saved, restore("s1", "r2", 1, 4, [2, 3])) is None
    assert first(Bench(full()), *saved, restore("s1", "r2", 1, 6, [3])) == "protected-aligned"


@pytest.mark.parametrize(
    "faulty",
    [
        commit(1, 5),
        roll_back(1, 6, 6),
        save("s1", "r1", 1, 5),
        release("r1", 1, [1, 2], "finished"),
    ],
    ids=["commit back", "roll-back that commits", "save less", "finish early"],
)
def test_settled_bound(faulty):
    """Nothing is confirmed, saved or finished but what results have confirmed, all of it."""
    bench = Bench(full())
    events = RUNNING if not hasattr(faulty, "copies") else (*RUNNING[:2], commit(1, 5))
    assert first(bench, *events, faulty) == "settled-bound"


def test_settled_bound_of_a_step_in_flight():
    """What a step has scheduled is confirmed by no other; once it settles, it may be."""
    bench = Bench(full())
    setup = (*RUNNING, allocate(1, 7), dispatch(1, 1), allocate(1, 8), settle(1))
    assert first(bench, *setup, commit(1, 8)) == "settled-bound"
    assert first(Bench(full()), *setup, commit(1, 7)) is None


def test_settled_bound_of_a_whole_prompt():
    """A request whose prompt is committed to the last token may finish."""
    bench = Bench(full())
    assert first(bench, *RUNNING, allocate(1, 8), commit(1, 8)) is None
    assert first(bench, release("r1", 1, [1, 2], "finished")) is None


def test_settled_bound_of_what_is_restored():
    """Without a backup nothing but the matched prefix comes back."""
    setup = (*PUBLISHED, retract("r1", 1, [1, 2]))
    assert first(Bench(full()), *setup, resume("r1", 1, 4, [1])) is None
    assert first(Bench(full()), *setup, resume("r1", 1, 4, [1], restored=6, new=[3])) == (
        "settled-bound"
    )
    backed = (*PUBLISHED, retract("r1", 1, [1, 2], backup=[50, 51]))
    assert first(Bench(full()), *backed, resume("r1", 1, 4, [1], restored=6, new=[3])) is None


def test_session_prefix_fixed():
    """In its second turn a session publishes nothing more; in its first it does."""
    turn = (*SAVED, restore("s1", "r2", 1, 6), allocate(1, 8), commit(1, 8))
    assert first(Bench(full()), *turn, protect(1, 8, [12])) == "session-prefix-fixed"
    assert first(Bench(full()), *PUBLISHED, allocate(1, 8), commit(1, 8), protect(1, 8, [12])) is (
        None
    )


@pytest.mark.parametrize(
    "faulty",
    [
        admit("r2", 1),
        admit("r1", 2),
        allocate(2, 4, [3]),
        commit(2, 0),
        protect(2, 0, []),
        roll_back(2, 0, 0),
        dispatch(1, 1, 2),
        save("s1", "r1", 2, 0),
        restore("s1", "r2", 1, 6),
        resume("r2", 2),
    ],
    ids=lambda event: type(event).__name__,
)
def test_row_single_holder(faulty):
    """A row in use is not bound again, a request has one row, and a FREE row does no work."""
    assert first(Bench(full()), *RUNNING, faulty) == "row-single-holder"


@pytest.mark.parametrize(
    "faulty",
    [
        dispatch(1, 1),
        restore("s1", "r2", 2, 0),
        restore("s2", "r2", 1, 6),
        save("s1", "r1", 1, 6),
        retract("r3", 1, [1, 2]),
    ],
    ids=["dispatch", "other row", "other session", "save again", "retract from another's row"],
)
def test_row_single_holder_of_sessions(faulty):
    """The row of an idle session runs nothing, and goes to a turn of that session only."""
    bench = Bench(full())
    assert first(bench, *SAVED, admit("r3", 3), faulty) == "row-single-holder"


def test_a_session_takes_turns_on_one_row():
    """Save and restore pass the row from request to session and on."""
    bench = Bench(full())
    assert first(bench, *SAVED, restore("s1", "r2", 1, 6), save("s1", "r2", 1, 6)) is None
    assert first(bench, close_session("s1", 1, [1, 2])) is None


def test_a_session_has_no_second_row():
    """A session that has a row is not saved on another one."""
    bench = Bench(full())
    assert first(bench, *SAVED, admit("r2", 2), save("s1", "r2", 2, 0)) == "row-single-holder"


@pytest.mark.parametrize(
    "faulty",
    [
        release("r1", 1, [1, 2]),
        release("r1", None),
        release("r9", None),
        release("r2", 3, [1, 2]),
        retract("r1", 1, [1, 2]),
        close_session("s9", None),
    ],
    ids=["again", "as if waiting", "unknown", "from another row", "retract", "unknown session"],
)
def test_release_once(faulty):
    """What has been released, or was never held, is not released."""
    bench = Bench(full())
    gone = (*RUNNING, release("r1", 1, [1, 2]), admit("r2", 2))
    assert first(bench, *gone, faulty) == "release-once"


def test_release_once_of_one_that_waits():
    """A retracted request is released once, without a row."""
    bench = Bench(full())
    assert first(bench, *RUNNING, retract("r1", 1, [1, 2]), release("r1", None)) is None
    assert first(bench, release("r1", None)) == "release-once"


def test_a_batch_names_the_rows_at_fault():
    """Evidence of a batch names the rows that break the invariant, and no others."""
    bench = Bench(full())
    setup = (*RUNNING, admit("r2", 2), allocate(2, 3, [3]))
    found = bench.do(*setup, Committed(ints(1, 2), ints(6, 4)))
    assert found.id == "ladder-order"
    assert found.evidence["rows"] == [2]
    assert found.evidence["committed"] == [4]
    assert found.evidence["allocated"] == [3]
    assert found.evidence["holders"] == ["request r2"]
