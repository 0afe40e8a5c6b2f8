"""Allocation that fails half way: C81."""

from scenes import (
    admitted,
    allocated,
    broken_by,
    ends_clean,
    in_state,
    ladder,
    prefill,
    refused,
    row_pages,
    run_engine,
    tell,
    watch,
)

from kvlife.config import CacheGroup
from kvlife.errors import OutOfPages


def test_c81_pages_taken_for_an_allocation_that_failed():
    """C81: four pages are taken and the fifth is not to be had: nobody's length covers the four."""
    observer = watch(4, 8)
    tell(observer, admitted("r1", 1, 20))
    found = broken_by(observer, allocated({1: 0}, [1, 2, 3, 4]))
    assert found.id == "allocated-covers-pages"
    assert found.evidence["pages"] == [1, 2, 3, 4]


def test_c81_a_length_that_five_pages_should_cover():
    """C81: the length is raised for five pages and four are named: the row lacks one."""
    observer = watch(4, 8)
    tell(observer, admitted("r1", 1, 20))
    found = broken_by(observer, allocated({1: 20}, [1, 2, 3, 4]))
    assert found.id == "allocated-covers-pages"
    assert found.evidence["allocated"] == [20]


def test_c81_no_room_takes_nothing():
    """C81: five pages wanted, four to be had: refused, the free list stays in its order."""
    engine = run_engine(4, 7)
    prefill(engine, "r0", list(range(12)))
    engine.admit("r1", list(range(50, 70)))
    order = engine.ledger.spaces[0].free.head(4).tolist()
    assert order == [4, 5, 6, 7]
    with refused(engine, OutOfPages, "5 pages of group 'full' asked for, 4 free"):
        engine.allocate(["r1"], [20])
    assert engine.ledger.spaces[0].free.head(4).tolist() == order
    engine.allocate(["r1"], [16])
    assert row_pages(engine, "r1") == [4, 5, 6, 7]
    engine.abort("r0")
    engine.abort("r1")
    ends_clean(engine)


def test_c81_evictions_that_would_not_suffice_do_not_happen():
    """C81: two free and two evictable pages are not five, and the two stay cached."""
    engine, cached = run_engine(4, 7), list(range(8))
    prefill(engine, "r0", cached)
    engine.finish("r0", cached)
    prefill(engine, "r2", list(range(30, 42)))
    engine.admit("r1", list(range(50, 70)))
    with refused(engine, OutOfPages, "2 free and 2 evictable"):
        engine.allocate(["r1"], [20])
    assert in_state(engine, "CACHED") == {1, 2}
    engine.allocate(["r1"], [16])
    assert in_state(engine, "CACHED") == set()
    assert ladder(engine, "r1") == (0, 0, 16)
    engine.abort("r1")
    engine.abort("r2")
    ends_clean(engine)


def test_c81_one_group_without_room_takes_nothing_of_the_other():
    """C81: full pages are there and a window page is not: neither group gives any."""
    groups = (CacheGroup("full"), CacheGroup("swa", window=8, num_pages=5))
    engine = run_engine(4, 16, groups=groups)
    engine.admit("r1", list(range(8)))
    engine.admit("r2", list(range(20, 40)))
    engine.allocate(["r1"], [8])
    assert in_state(engine, "FREE", 1) == {3, 4}
    with refused(engine, OutOfPages, "group 'swa' asked for, 2 free"):
        engine.allocate(["r1", "r2"], [12, 8])
    engine.allocate(["r1", "r2"], [12, 4])
    assert row_pages(engine, "r1", 1) == [1, 2, 3]
    assert row_pages(engine, "r2", 1) == [4]
    engine.abort("r1")
    engine.abort("r2")
    ends_clean(engine)
