"""Retraction and preemption: C19, C21, C23; the host's pages: C60."""

import pytest
from scenes import (
    admitted,
    allocated,
    broken_by,
    committed,
    ends_clean,
    in_state,
    ladder,
    numbers,
    prefill,
    published,
    refused,
    released,
    retracted,
    rolled_back,
    row_pages,
    run_engine,
    standing,
    tell,
    watch,
)

from kvlife.errors import EventError, LogFull, UnknownRequest
from kvlife.events import Retracted
from kvlife.invariants import Checker

TOKENS = list(range(9))


def test_c19_the_start_is_rounded_up_past_a_private_page():
    """C19: a retraction that starts at ceil(6/4)*4 = 8 frees page 3 and forgets private page 2."""
    observer = watch(4, 8)
    tell(
        observer,
        admitted("r1", 1, 6),
        allocated({1: 12}, [1, 2, 3]),
        committed({1: 9}),
        published(1, 4, [101]),
    )
    found = broken_by(observer, retracted("r1", 1, [1, 3]))
    assert found.id == "refs-balance"
    assert found.evidence["pages"] == [2]


def test_c19_the_border_is_what_is_protected():
    """C19: retract frees [4, allocated), pages 2 and 3, and leaves page 1 cached and unlocked."""
    engine = run_engine(4, 8)
    engine.admit("r1", TOKENS[:6])
    engine.allocate(["r1"], [12])
    engine.commit(["r1"], [9])
    assert engine.protect("r1", TOKENS[:6]) == 4
    assert ladder(engine, "r1") == (4, 9, 12)
    engine.retract("r1")
    assert in_state(engine, "CACHED") == {1}
    assert in_state(engine, "FREE") == {2, 3, 4, 5, 6, 7, 8}
    assert engine.num_evictable() == 1
    assert engine.resume("r1", TOKENS).prefix_len == 4
    assert row_pages(engine, "r1") == [1]
    engine.abort("r1")
    ends_clean(engine)


def running_private():
    """R1 of C21: private pages 1-3, running."""
    observer = watch(4, 8)
    tell(
        observer,
        admitted("r1", 1, 12),
        allocated({1: 12}, [1, 2, 3]),
        committed({1: 12}),
    )
    return observer


def test_c21_half_a_retraction_is_recorded_not_at_all():
    """C21: pages go into the tree, then the retraction fails: neither stands in the log.

    The events of one command are one group, whole or not at all: the ill-formed second half (a
    host page that cannot be) takes the first half with it.
    """
    observer = running_private()
    before = (observer.ledger.digest(), observer.next_seq)
    no_room = Retracted("r1", 1, numbers([-1]), (numbers([1, 2, 3]),))
    with pytest.raises(EventError, match=r"Retracted\.backup"):
        observer.observe(published(1, 12, [101, 102, 103]), no_room)
    assert (observer.ledger.digest(), observer.next_seq) == before
    tell(observer, published(1, 12, [101, 102, 103]), retracted("r1", 1, [1, 2, 3]))


def test_c21_pages_in_the_tree_and_an_empty_row():
    """C21: written as facts, R1's emptied list beside its published pages breaks the ladder."""
    observer = running_private()
    tell(observer, published(1, 12, [101, 102, 103]))
    found = broken_by(observer, rolled_back(1, 0, 0, [1, 2, 3]))
    assert found.id == "ladder-order"
    assert found.evidence["protected"] == [12]


def test_c21_the_next_retraction_of_an_emptied_list():
    """C21: a retraction that has no pages to name leaves all three of the row without owner."""
    found = broken_by(running_private(), retracted("r1", 1, []))
    assert found.id == "refs-balance"
    assert found.evidence["pages"] == [1, 2, 3]


def test_c21_a_refused_retraction_changes_nothing():
    """C21: refused, or stopped by a full log, a retraction leaves request, tree, pools and log."""
    engine = run_engine(4, 8)
    prefill(engine, "r1", list(range(12)))
    engine.protect("r1", list(range(8)))
    with refused(engine, UnknownRequest, "no live request 'r2'"):
        engine.retract("r2")
    before = standing(engine)
    engine.log.full = LogFull("no space")
    with pytest.raises(LogFull):
        engine.retract("r1")
    assert standing(engine) == before
    assert engine.closed
    assert row_pages(engine, "r1") == [1, 2, 3]
    assert ladder(engine, "r1") == (8, 12, 12)


def test_c21_a_retraction_is_one_step_from_running_to_waiting():
    """C21: a retracted request has no row, its pages are free or cached, once and for all."""
    engine = run_engine(4, 8)
    prefill(engine, "r1", list(range(12)))
    engine.protect("r1", list(range(8)))
    engine.retract("r1")
    assert in_state(engine, "CACHED") == {1, 2}
    assert in_state(engine, "FREE") == {3, 4, 5, 6, 7, 8}
    assert not engine.record("r1").holds_kv
    with refused(engine, UnknownRequest, "is retracted and waits"):
        engine.retract("r1")
    engine.abort("r1")
    ends_clean(engine)


def test_c21_no_host_room_is_found_before_anything_changes():
    """C21: with room for 2 of 3 pages the retraction is a plain one: no host page is taken."""
    engine = run_engine(4, 8, host_pages=3)
    prefill(engine, "r1", list(range(12)))
    done = engine.retract_with_backup("r1")
    assert done.backup is None
    assert done.why_not == "it takes 3 host pages, and 2 are free"
    assert [type(event).__name__ for event in engine.log.events[3:]] == ["Retracted"]
    assert engine.log.events[3].backup is None
    assert engine.num_free_host() == 2
    assert in_state(engine, "FREE") == set(range(1, 9))
    back = engine.resume("r1", list(range(12)))
    assert (back.restored_len, back.why_recomputed) == (0, None)
    engine.abort("r1")
    ends_clean(engine)


def test_c21_a_refused_backup_changes_nothing():
    """C21: refused, or stopped by a full log, a retraction with a backup leaves all as it was."""
    engine = run_engine(4, 8, host_pages=9)
    prefill(engine, "r1", list(range(12)))
    with refused(engine, UnknownRequest, "no live request 'r2'"):
        engine.retract_with_backup("r2")
    before = standing(engine)
    engine.log.full = LogFull("no space")
    with pytest.raises(LogFull):
        engine.retract_with_backup("r1")
    assert standing(engine) == before
    assert engine.num_free_host() == 8
    assert row_pages(engine, "r1") == [1, 2, 3]


def test_c23_an_aborted_backup_is_left_on_the_host():
    """C23: R1 waits with 5 host pages and is aborted without them: refs-balance, at the abort."""
    observer = watch(4, 8, host_pages=9)
    tell(
        observer,
        admitted("r1", 1, 20),
        allocated({1: 20}, [1, 2, 3, 4, 5]),
        committed({1: 20}),
        Retracted("r1", 1, numbers([1, 2, 3, 4, 5]), (numbers([1, 2, 3, 4, 5]),)),
    )
    found = broken_by(observer, released("r1", None, "aborted"))
    assert found.id == "refs-balance"
    assert found.evidence["host_pages_owned"] == [1, 2, 3, 4, 5]


def test_c23_ten_rounds_leave_nothing_on_the_host():
    """C23: ten requests are backed up and aborted while they wait; every host page is free."""
    engine = run_engine(4, 8, host_pages=6)
    for turn in range(10):
        rid = f"r{turn}"
        prefill(engine, rid, list(range(20)))
        assert len(engine.retract_with_backup(rid).backup.host_pages) == 5
        assert engine.num_free_host() == 0
        engine.abort(rid)
        assert engine.num_free_host() == 5
    assert engine.stats().host_pages["FREE"] == 5
    ends_clean(engine)


def test_c60_each_tier_counts_its_own_free_pages():
    """C60: a backup takes as many pages of the host as it gives back on the device, and no more.

    The two have page spaces and free lists of their own, and an event names host pages in a field
    of their own: a page cannot be claimed from the other's list.
    """
    engine = run_engine(4, 8, host_pages=9)
    prefill(engine, "r1", list(range(12)))
    assert (engine.num_free(), engine.num_free_host()) == (5, 8)
    engine.retract_with_backup("r1")
    assert (engine.num_free(), engine.num_free_host()) == (8, 5)
    assert engine.resume("r1", list(range(13))).restored_len == 12
    assert (engine.num_free(), engine.num_free_host()) == (5, 8)
    assert engine.audit() == []
    engine.ledger.host.free.num_free += 1
    engine.ledger.host.free.slots[7] = engine.ledger.host.free.slots[6]
    assert Checker(policy="collect").audit(engine.ledger)[0].id == "page-conservation"
