"""Locks in the prefix tree, and flush: C50, C54."""

from scenes import (
    admitted,
    allocated,
    broken_by,
    committed,
    ends_clean,
    evicted,
    in_state,
    pinned,
    prefill,
    published,
    refs_of,
    refused,
    released,
    row_pages,
    run_engine,
    tell,
    unpinned,
    watch,
    watch_on,
)

from kvlife.config import CacheGroup
from kvlife.errors import CommandRefused

FULL, SWA = 0, 1
GROUPS = (CacheGroup("full"), CacheGroup("swa", window=4))
A, B, C = 1, 2, 3
PATH = list(range(12))


def window_locks():
    """The events up to step 2 of C50: R2 locks A and B in the window group, R1 locks C alone."""
    return (
        admitted("r2", 2, 8, [], [], cursors=(0,)),
        allocated({2: 8}, [A, B], [A, B]),
        committed({2: 8}),
        published(2, 8, [101, 102], [101, 102]),
        admitted("r0", 3, 12, [A, B], [B], prefix_len=8, cursors=(4,)),
        allocated({3: 12}, [C], [C]),
        committed({3: 12}),
        published(3, 12, [103], [103]),
        released("r0", 3, "finished", [A, B, C], [B, C]),
        admitted("r1", 1, 13, [A, B, C], [C], prefix_len=12, cursors=(8,)),
    )


def test_c50_a_release_unlocks_more_than_was_locked():
    """C50: R1 locked C in the window group, and its release walks up and unlocks B and A as well.

    There is no lock counter beside the references: a row locks what it references, and its page
    table is the receipt. So the wide release is one that lets go of pages that the row does not
    reference, which the catalogue puts above the count that would be wrong after it (refs-balance).
    """
    observer = watch(4, 8, groups=GROUPS)
    tell(observer, *window_locks())
    assert refs_of(observer, A, B, C, group=SWA) == [1, 1, 1]
    assert row_pages(observer, "r1", SWA) == [0, 0, C]
    found = broken_by(observer, released("r1", 1, "aborted", [A, B, C], [C, B, A]))
    assert found.id == "page-freed-by-stranger"
    assert found.evidence["pages"] == [A, B]
    assert found.evidence["owners"] == [["request r2"], ["request r2"]]


def test_c50_the_lock_counts_are_found_wrong_in_a_recount():
    """C50: applied all the same, the wide release leaves A and B with fewer refs than rows."""
    observer = watch_on(4, 8, groups=GROUPS)
    tell(observer, *window_locks())
    observer.observe(released("r1", 1, "aborted", [A, B, C], [C, B, A]))
    assert refs_of(observer, A, B, group=SWA) == [0, 0]
    assert "refs-balance" in [found.id for found in observer.audit()]


def test_c50_a_temporary_lock_is_a_pin_and_the_pin_is_its_receipt():
    """C50: a lock around an eviction is a pin; to end it for more pages than it has is named."""
    observer = watch(4, 8, groups=GROUPS)
    tell(observer, *window_locks(), pinned("copy on write", [C], kind="lock", group=SWA))
    found = broken_by(observer, unpinned("copy on write", [C, B, A], group=SWA))
    assert found.id == "pinned-page-freed"
    assert found.evidence["pages_pinned"] == [C]


def test_c50_window_eviction_under_a_running_request():
    """C50: a window eviction that takes A while R2 runs is named by the lock that R2 still has."""
    observer = watch(4, 8, groups=GROUPS)
    tell(observer, *window_locks())
    tell(observer, released("r1", 1, "aborted", [A, B, C], [C]))
    found = broken_by(observer, evicted("pressure", [], [A]))
    assert found.id == "evicted-while-locked"
    assert found.evidence["owners"] == [["request r2"]]


def test_c50_a_row_unlocks_exactly_what_it_locked():
    """C50: after R1 has gone, A and B are as locked as before, and eviction takes C alone."""
    engine = run_engine(4, 8, groups=GROUPS)
    prefill(engine, "r2", PATH[:8])
    engine.protect("r2", PATH[:8])
    prefill(engine, "r0", PATH)
    engine.finish("r0", PATH)
    assert refs_of(engine, A, B, C, group=SWA) == [1, 1, 0]
    engine.admit("r1", [*PATH, 99])
    assert row_pages(engine, "r1", SWA) == [0, 0, C]
    assert refs_of(engine, A, B, C, group=SWA) == [1, 1, 1]
    assert engine.evict(3, group="swa") == 0
    engine.abort("r1")
    assert refs_of(engine, A, B, C, group=SWA) == [1, 1, 0]
    assert engine.evict(3, group="swa") == 1
    assert in_state(engine, "CACHED", SWA) == {A, B}
    engine.finish("r2", PATH[:8])
    ends_clean(engine)


def test_c54_flush_under_a_live_holder():
    """C54: a flush puts R1's locked node back as free while R1's last result is pending."""
    observer = watch(4, 8)
    tell(
        observer,
        admitted("r1", 1, 8),
        allocated({1: 8}, [1, 2]),
        committed({1: 8}),
        published(1, 4, [101]),
    )
    found = broken_by(observer, evicted("flush", [1]))
    assert found.id == "evicted-while-locked"
    assert found.evidence["reason"] == "flush"
    assert found.evidence["owners"] == [["request r1"]]


def test_c54_flush_under_a_pin():
    """C54: a flush of a page that a hand-over still reads is named, though no request has it."""
    observer = watch(4, 8)
    tell(
        observer,
        admitted("r1", 1, 4),
        allocated({1: 4}, [1]),
        committed({1: 4}),
        published(1, 4, [101]),
        pinned("hand-over", [1]),
        released("r1", 1, "finished", [1]),
    )
    found = broken_by(observer, evicted("flush", [1]))
    assert found.id == "evicted-while-locked"
    assert found.evidence["pins_held"] == ["hand-over"]


def test_c54_flush_looks_at_the_records():
    """C54: flush is refused for a live row, a step in flight, a pin and a session."""
    engine, tokens = run_engine(4, 8), list(range(8))
    prefill(engine, "r1", tokens)
    engine.protect("r1", tokens)
    engine.dispatch(1, ["r1"])
    engine.pin("hand-over", [1], "transfer")
    with refused(engine, CommandRefused, "1 live requests, 1 pins, 1 steps in flight"):
        engine.flush()
    engine.abort("r1")
    with refused(engine, CommandRefused, "1 pins, 1 steps in flight"):
        engine.flush()
    engine.settle(1)
    with refused(engine, CommandRefused, "there are 1 pins"):
        engine.flush()
    engine.unpin("hand-over")
    prefill(engine, "r2", tokens)
    engine.session_save("s1", "r2", 8)
    with refused(engine, CommandRefused, "1 sessions"):
        engine.flush()
    engine.session_close("s1")
    assert engine.flush() == 2
    assert in_state(engine, "FREE") == set(range(1, 9))
    ends_clean(engine)
