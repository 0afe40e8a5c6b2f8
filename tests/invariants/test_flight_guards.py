"""Guards over what is in flight, over windows, and over pages published before they are written."""

import pytest
from short_events import (
    Bench,
    admit,
    allocate,
    close_session,
    commit,
    dispatch,
    evict,
    evict_window,
    full,
    pin,
    protect,
    release,
    resize,
    restore,
    retract,
    roll_back,
    save,
    settle,
    unpin,
    windowed,
)

RUNNING = (admit("r1", 1, prompt=8), allocate(1, 8, [1, 2]), commit(1, 8))
CACHED = (*RUNNING, protect(1, 4, [11]))
IDLE_CACHE = (*CACHED, release("r1", 1, [1, 2]))
# 16 tokens on pages 1 to 4 of both groups, P=4 and W=6: the cursor may stand at 8.
WINDOW = (
    admit("r1", 1, 0, [[], []], cursors=[0]),
    allocate(1, 16, [[1, 2, 3, 4], [1, 2, 3, 4]]),
    commit(1, 16),
)


def first(bench, *events):
    found = bench.do(*events)
    return None if found is None else found.id


def windows():
    return Bench(windowed(window=6))


def test_evicted_while_locked():
    """A page that a row references, a pin holds, or that was never published is not evicted."""
    found = Bench(full()).do(*CACHED, evict([1]))
    assert found.id == "evicted-while-locked"
    assert found.evidence["owners"] == [["request r1"]]
    assert first(Bench(full()), *CACHED, evict([2])) == "evicted-while-locked"
    found = Bench(full()).do(*IDLE_CACHE, pin("p1", [1]), evict([1]))
    assert found.id == "evicted-while-locked"
    assert found.evidence["pins_held"] == ["p1"]
    assert first(Bench(full()), *IDLE_CACHE, evict([1])) is None


@pytest.mark.parametrize(
    "faulty",
    [
        pin("p2", [9]),
        pin("p1", [1]),
        pin("p2", [2, 2]),
        unpin("p9", [2]),
        unpin("p1", [1]),
    ],
    ids=["pins a FREE page", "id in use", "twice", "unknown", "other pages"],
)
def test_pinned_page_freed(faulty):
    """A pin is on pages in use, and ends on the pages that it began with."""
    setup = (*IDLE_CACHE, admit("r2", 2), allocate(2, 4, [2]), pin("p1", [2]))
    assert first(Bench(full()), *setup, faulty) == "pinned-page-freed"


def test_a_page_in_quarantine_is_not_dropped():
    """A space does not shrink over a page that a pin still holds."""
    setup = (*RUNNING, pin("copy", [2]), release("r1", 1, [1, 2]))
    assert first(Bench(full()), *setup, resize(2)) == "pinned-page-freed"
    assert first(Bench(full()), *setup, resize(3)) is None


def test_a_page_in_quarantine_is_not_handed_out():
    """What a copy still reads belongs to nobody, and is not FREE, until the copy has ended."""
    setup = (*RUNNING, pin("copy", [2]), retract("r1", 1, [1, 2]), admit("r2", 2))
    found = Bench(full()).do(*setup, allocate(2, 4, [2]))
    assert found.id == "pinned-page-freed"
    assert found.evidence["pins_held"] == ["copy"]
    assert first(Bench(full()), *setup, unpin("copy", [2]), allocate(2, 4, [2])) is None


@pytest.mark.parametrize(
    "faulty", [release("r1", 1, [1, 2]), retract("r1", 1, [1, 2])], ids=["release", "retract"]
)
def test_in_flight_fence(faulty):
    """A row that a step reads lets nothing go: it drains when its last step settles."""
    assert first(Bench(full()), *RUNNING, dispatch(1, 1), faulty) == "in-flight-fence"
    bench = Bench(full())
    assert first(bench, *RUNNING, dispatch(1, 1), dispatch(2, 1), release("r1", 1)) is None
    assert first(bench, settle(1), settle(2, [1], [1, 2])) is None


def test_in_flight_fence_of_a_session():
    """A session closed while a step reads its row keeps its pages until that step settles."""
    setup = (*RUNNING, dispatch(1, 1), save("s1", "r1", 1, 8))
    assert first(Bench(full()), *setup, close_session("s1", 1, [1, 2])) == "in-flight-fence"
    assert first(Bench(full()), *setup, close_session("s1", 1), settle(1, [1], [1, 2])) is None


@pytest.mark.parametrize(
    ("steps", "faulty"),
    [
        ([1, 2], settle(2)),
        ([1, 2], settle(7)),
        ([1, 2], settle(1, [1], [1, 2])),
        ([1], settle(1)),
        ([1, 2], dispatch(2, 2)),
        ([1, 2], dispatch(1, 2)),
    ],
    ids=["not the oldest", "unknown", "drains early", "drains late", "open", "not above"],
)
def test_steps_keep_their_order(steps, faulty):
    """Steps settle in the order of dispatch, and a row drains with its last one exactly."""
    in_flight = [dispatch(step, 1) for step in steps]
    setup = (*RUNNING, admit("r2", 2), *in_flight, release("r1", 1))
    assert first(Bench(full()), *setup, faulty) == "in-flight-fence"


@pytest.mark.parametrize(
    "faulty",
    [commit(1, 8), protect(1, 4, [11]), dispatch(1, 1)],
    ids=["committed", "published", "dispatched"],
)
def test_what_is_still_written_is_not_used(faulty):
    """A page under a write pin is not committed, published or dispatched; one that is read is."""
    setup = (*RUNNING[:2], commit(1, 4))
    writer = pin("load", [1, 2], writes=True)
    assert first(Bench(full()), *setup, writer, faulty) == "in-flight-fence"
    assert first(Bench(full()), *setup, pin("copy", [1, 2]), faulty) is None
    assert first(Bench(full()), *setup, writer, unpin("load", [1, 2]), faulty) is None


@pytest.mark.parametrize(
    ("cursor", "pages", "id_"),
    [
        (8, [1, 2], None),
        (4, [1], None),
        (12, [1, 2, 3], "window-cursor"),
        (6, [1], "window-cursor"),
    ],
)
def test_window_cursor(cursor, pages, id_):
    """The cursor passes whole pages that lie before the window of the next query: 16 - 6 + 1."""
    assert first(windows(), *WINDOW, evict_window(1, 1, cursor, pages)) == id_


def test_a_cursor_does_not_go_back():
    """What the window has passed does not come back by itself."""
    moved = (*WINDOW, evict_window(1, 1, 8, [1, 2]))
    assert first(windows(), *moved, evict_window(1, 1, 4)) == "window-cursor"
    assert first(windows(), *moved, evict_window(1, 1, 8)) is None


def test_a_group_without_a_window_has_no_cursor():
    """A cursor is moved in a window group only."""
    assert first(windows(), *WINDOW, evict_window(0, 1, 0)) == "window-cursor"


def test_a_roll_back_keeps_the_window_of_its_end():
    """The window of token 13 begins at 8; that of token 12 would begin at 7, which is gone."""
    moved = (*WINDOW, evict_window(1, 1, 8, [1, 2]))
    assert first(windows(), *moved, roll_back(1, 13, 13, [[], []])) is None
    cut = roll_back(1, 12, 12, [[4], [4]])
    assert first(windows(), *moved, cut) == "window-cursor"
    assert first(windows(), *moved, roll_back(1, 0, 0, [[1, 2, 3, 4], [3, 4]])) is None


def test_a_rewind_keeps_the_window_of_its_end():
    """A session goes back to where its window still is, or to nothing."""
    saved = (*WINDOW, evict_window(1, 1, 8, [1, 2]), save("s1", "r1", 1, 16, [[], []]))
    assert first(windows(), *saved, restore("s1", "r2", 1, 13, [[], []])) is None
    back = restore("s1", "r2", 1, 12, [[4], [4]])
    assert first(windows(), *saved, back) == "window-cursor"
    assert first(windows(), *saved, restore("s1", "r2", 1, 0, [[1, 2, 3, 4], [3, 4]])) is None


def test_an_allocation_skips_only_what_never_had_pages():
    """The front of a long prompt needs no window pages; where there are some, the cursor stays."""
    fresh = WINDOW[0]
    skipping = allocate(1, 16, [[1, 2, 3, 4], [1, 2]], [8])
    assert first(windows(), fresh, skipping) is None
    beyond = allocate(1, 16, [[1, 2, 3, 4], []], [20])
    assert first(windows(), fresh, beyond) == "window-cursor"
    odd = allocate(1, 16, [[1, 2, 3, 4], [1, 2]], [9])
    assert first(windows(), fresh, odd) == "window-cursor"
    late = allocate(1, 24, [[5, 6], [5]], [20])
    assert first(windows(), *WINDOW, late) == "window-cursor"


def test_an_admission_brings_the_window_of_its_prefix():
    """A hit of 12 tokens needs window positions from 7 on, so the cursor stands at 4 at most."""
    keys = [[11, 12, 13], [11, 12, 13]]
    cached = (*WINDOW, protect(1, 12, keys))
    good = admit("r2", 2, 12, [[1, 2, 3], [2, 3]], cursors=[4])
    bad = admit("r2", 2, 12, [[1, 2, 3], [3]], cursors=[8])
    assert first(windows(), *cached, good) is None
    assert first(windows(), *cached, bad) == "window-cursor"


def test_window_pages_that_are_gone_are_not_published():
    """Keys name no window page below the cursor."""
    moved = (*WINDOW, evict_window(1, 1, 8, [1, 2]))
    claims = protect(1, 12, [[11, 12, 13], [11, 12, 13]])
    honest = protect(1, 12, [[11, 12, 13], [0, 0, 13]])
    assert first(windows(), *moved, claims) == "window-cursor"
    assert first(windows(), *moved, honest) is None


def test_written_before_shared():
    """A page published when it was scheduled is read once its publisher is on the way."""
    config = full(publish="scheduled")
    shared = (
        admit("r1", 1),
        allocate(1, 8, [1, 2]),
        protect(1, 8, [11, 12]),
        admit("r2", 2, 8, [1, 2]),
    )
    found = Bench(config).do(*shared, dispatch(1, 2))
    assert found.id == "written-before-shared"
    assert found.evidence["publishers"] == [1]
    assert first(Bench(config), *shared, dispatch(1, 1, 2)) is None
    assert first(Bench(config), *shared, dispatch(1, 1), dispatch(2, 2)) is None
    assert first(Bench(config), *shared, commit(1, 8), dispatch(1, 2)) is None
