"""The ladder and speculative over-allocation: C10, C12, C14."""

from scenes import (
    admitted,
    allocated,
    broken_by,
    committed,
    ends_clean,
    in_state,
    ladder,
    prefill,
    refused,
    released,
    row_pages,
    run_engine,
    saved,
    tell,
    watch,
)

from kvlife.errors import BadLength


def test_c10_a_session_is_saved_with_more_than_is_allocated():
    """C10: a session with 8 tokens allocated is saved as 0/9/8, and the save is named."""
    observer = watch(4, 8)
    tell(
        observer,
        admitted("r1", 1, 6),
        allocated({1: 8}, [1, 2]),
        committed({1: 8}),
    )
    found = broken_by(observer, saved("s1", "r1", 1, 9))
    assert found.id == "ladder-order"
    assert found.evidence["kept_len"] == 9
    assert found.evidence["allocated_before"] == [8]


def test_c10_the_early_bonus_token_is_seen_as_well():
    """C10: a worker that commits the bonus token before it is allocated breaks the ladder there."""
    observer = watch(4, 8)
    tell(observer, admitted("r1", 1, 6), allocated({1: 8}, [1, 2]), committed({1: 8}))
    assert broken_by(observer, committed({1: 9})).id == "ladder-order"


def test_c10_new_pages_are_counted_from_allocated():
    """C10: a save beyond committed is refused, and turn 2 takes a new page, not S2's page 7."""
    engine = run_engine(4, 9)
    prefill(engine, "r1", list(range(8)))
    prefill(engine, "r2", list(range(100, 120)))
    assert row_pages(engine, "r1") == [1, 2]
    assert row_pages(engine, "r2") == [3, 4, 5, 6, 7]
    with refused(engine, BadLength, "committed of 'r1'"):
        engine.session_save("s1", "r1", 9)
    engine.session_save("s1", "r1", 8)
    engine.session_save("s2", "r2", 20)
    engine.session_restore("s1", "r3", 8)
    assert ladder(engine, "r3") == (0, 8, 8)
    engine.allocate(["r3"], [12])
    assert row_pages(engine, "r3") == [1, 2, 8]
    engine.commit(["r3"], [12])
    engine.session_save("s1", "r3", 12)
    engine.session_close("s2")
    assert in_state(engine, "FREE") == {3, 4, 5, 6, 7, 9}
    engine.session_close("s1")
    assert in_state(engine, "FREE") == set(range(1, 10))
    ends_clean(engine)


def test_c12_draft_pages_that_the_ladder_does_not_cover():
    """C12: a tick takes pages 2 and 3 for drafts and leaves the ladder at 0/60/60."""
    observer = watch(64, 8, capacity=512)
    tell(observer, admitted("r1", 1, 60), allocated({1: 60}, [1]), committed({1: 60}))
    found = broken_by(observer, allocated({1: 60}, [2, 3]))
    assert found.id == "allocated-covers-pages"
    assert found.evidence["pages"] == [2, 3]
    assert found.evidence["allocated"] == [60]


def test_c12_pages_and_allocated_rise_in_one_event():
    """C12: drafts are allocated with their pages, and the release covers those not accepted."""
    engine = run_engine(64, 8, capacity=512)
    prefill(engine, "r1", list(range(60)))
    engine.allocate(["r1"], [192])
    assert row_pages(engine, "r1") == [1, 2, 3]
    engine.commit(["r1"], [65])
    assert ladder(engine, "r1") == (0, 65, 192)
    assert engine.finish("r1", list(range(65))) == 64
    assert in_state(engine, "CACHED") == {1}
    assert in_state(engine, "FREE") == {2, 3, 4, 5, 6, 7, 8}
    ends_clean(engine)


# C14: a context of 1,024 tokens and 12 spare places. A step of 4 branches with 2 new pages of 64
# each reserves 512 slots, doubled for overlap 1,024.
CONTEXT, RESERVE = 1024, 4 * 2 * 64 * 2


def test_c14_the_reserve_outgrows_the_row():
    """C14: a draft reserve that ends 824 slots after the context is named at the reserve event."""
    observer = watch(64, 40, capacity=CONTEXT + 12)
    tell(
        observer,
        admitted("r1", 1, 824),
        allocated({1: 824}, range(1, 14)),
        committed({1: 824}),
    )
    # 1,848 tokens lie on 29 pages; a row of 1,036 has 17, so that 12 would never be freed.
    found = broken_by(observer, allocated({1: 824 + RESERVE}, range(14, 30)))
    assert found.id == "ladder-order"
    assert found.evidence["allocated"] == [CONTEXT + 824]
    assert found.evidence["capacity"] == CONTEXT + 12


def test_c14_the_reserve_is_refused_where_it_does_not_fit():
    """C14: a reserve beyond the row is refused and changes nothing."""
    engine = run_engine(64, 40, capacity=CONTEXT + 12)
    prefill(engine, "r1", list(range(824)))
    with refused(engine, BadLength, "its row holds 1036"):
        engine.allocate(["r1"], [824 + RESERVE])
    engine.abort("r1")
    ends_clean(engine)


def test_c14_a_row_sized_for_the_worst_reserve_gives_all_of_it_back():
    """C14: a row of context and reserve takes 29 pages at the worst and frees each of them."""
    engine = run_engine(64, 40, capacity=CONTEXT + RESERVE)
    prefill(engine, "r1", list(range(824)))
    engine.allocate(["r1"], [824 + RESERVE])
    assert len(set(row_pages(engine, "r1"))) == 29
    engine.abort("r1")
    assert in_state(engine, "FREE") == set(range(1, 41))
    ends_clean(engine)


def test_c14_release_cut_at_the_row_end_leaves_twelve_pages():
    """C14: a release that names only the 17 pages of the narrow row leaves 12 without owner."""
    observer = watch(64, 40, capacity=CONTEXT + RESERVE)
    tell(
        observer,
        admitted("r1", 1, 824),
        allocated({1: 824}, range(1, 14)),
        committed({1: 824}),
        allocated({1: 824 + RESERVE}, range(14, 30)),
    )
    found = broken_by(observer, released("r1", 1, "finished", range(1, 18)))
    assert found.id == "refs-balance"
    assert found.evidence["pages"] == list(range(18, 30))
