"""Sliding window: C27, C29, C31."""

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
    released,
    row_pages,
    run_engine,
    tell,
    watch,
    window_evicted,
)

from kvlife.config import CacheGroup

FULL, SWA = 0, 1


def two_groups(window):
    """A full group and a window group, each with pages of its own."""
    return (CacheGroup("full"), CacheGroup("swa", window=window))


def cursor_at_the_border():
    """R1 of C27: 20 tokens, cursor floor8(20 - 4) = 16, window pages 1 and 2 gone."""
    observer = watch(8, 8, groups=two_groups(4))
    tell(
        observer,
        admitted("r1", 1, 20, [], [], cursors=(0,)),
        allocated({1: 20}, [1, 2, 3], [1, 2, 3]),
        committed({1: 20}),
        window_evicted(SWA, 1, 16, [1, 2]),
    )
    return observer


def test_c27_a_published_node_claims_window_pages_below_the_cursor():
    """C27: 16 tokens are inserted with window data, all of which the cursor has passed."""
    found = broken_by(cursor_at_the_border(), published(1, 16, [101, 102], [201, 202]))
    assert found.id == "window-cursor"
    assert found.evidence["cursor"] == 16
    assert found.evidence["table_idx"] == [0, 1]


def test_c27_the_later_eviction_frees_the_window_pages_again():
    """C27: evicting the node's window pages 1 and 2, gone before, is a double free."""
    observer = cursor_at_the_border()
    tell(observer, published(1, 16, [101, 102], [0, 0]))
    found = broken_by(observer, evicted("pressure", [], [1, 2]))
    assert found.id == "page-double-free"
    assert found.evidence["pages"] == [1, 2]


def test_c27_the_cursor_keeps_a_page_below_the_insert_border():
    """C27: the cursor stops at floor8(20 - 8) = 8, so that the 16 published tokens can be hit."""
    engine, tokens = run_engine(8, 8, groups=two_groups(4)), list(range(20))
    prefill(engine, "r1", tokens)
    assert engine.evict_window(["r1"]) == 1
    assert engine.record("r1").swa_evicted_seqlen == 8
    assert in_state(engine, "FREE", SWA) == {1, 4, 5, 6, 7, 8}
    assert engine.protect("r1", tokens) == 16
    assert in_state(engine, "CACHED", SWA) == {2}
    assert in_state(engine, "CACHED", FULL) == {1, 2}
    assert engine.match(tokens).prefix_len == 16
    engine.finish("r1", tokens)
    assert in_state(engine, "FREE", SWA) == {1, 3, 4, 5, 6, 7, 8}
    assert engine.evict(8) == 2
    assert in_state(engine, "FREE", SWA) == set(range(1, 9))
    ends_clean(engine)


def recycled_full_slots():
    """R2 of C29: full slots 50-57 that R1 had, window slots for 54-57 alone; R3 has R1's 5-8."""
    observer = watch(1, 60, groups=two_groups(4))
    tell(
        observer,
        admitted("r1", 1, 8, [], [], cursors=(0,)),
        allocated({1: 8}, range(50, 58), range(5, 13)),
        committed({1: 8}),
        released("r1", 1, "finished", range(50, 58), range(5, 13)),
        admitted("r3", 3, 4, [], [], cursors=(0,)),
        allocated({3: 4}, range(20, 24), range(5, 9)),
        committed({3: 4}),
        admitted("r2", 2, 8, [], [], cursors=(0,)),
        allocated({2: 8}, range(50, 58), range(30, 34), cursors=([4],)),
    )
    return observer


def test_c29_no_mapping_from_full_to_window_pages_is_left():
    """C29: a stale mapping cannot be written down, as each group has a page table of its own.

    The fault is a map from full slots to window slots that outlives its request. Here R2's window
    table stands beside its full table, both by position, and a release empties both; so the skipped
    positions have no window page, whatever R1 had there.
    """
    observer = recycled_full_slots()
    assert row_pages(observer, "r2", FULL) == list(range(50, 58))
    assert row_pages(observer, "r2", SWA) == [0, 0, 0, 0, 30, 31, 32, 33]
    assert row_pages(observer, "r3", SWA) == [5, 6, 7, 8]
    assert observer.ledger.pages_of(1, SWA).tolist() == []


def test_c29_following_the_old_mapping_frees_a_strangers_pages():
    """C29: R2's cursor passes 4 and window pages 5-8 are freed, which R3 owns."""
    observer = recycled_full_slots()
    tell(observer, committed({2: 8}))
    found = broken_by(observer, window_evicted(SWA, 2, 5, [5, 6, 7, 8]))
    assert found.id == "page-freed-by-stranger"
    assert found.evidence["pages"] == [5, 6, 7, 8]
    assert found.evidence["owners"] == [["request r3"]] * 4
    assert found.also["refs-balance"]["pages"] == [30]


def test_c29_the_cursor_frees_the_rows_own_window_pages():
    """C29: a request with window pages for its tail alone frees those, and R3 keeps its own."""
    engine = run_engine(1, 60, groups=two_groups(4))
    prefill(engine, "r1", list(range(8)))
    assert row_pages(engine, "r1", SWA) == [1, 2, 3, 4, 5, 6, 7, 8]
    engine.abort("r1")
    prefill(engine, "r3", list(range(20, 24)))
    assert row_pages(engine, "r3", SWA) == [1, 2, 3, 4]
    engine.admit("r2", list(range(40, 48)))
    engine.allocate(["r2"], [8], window_start_lens=[4])
    engine.commit(["r2"], [8])
    assert row_pages(engine, "r2", SWA) == [0, 0, 0, 0, 5, 6, 7, 8]
    assert engine.evict_window(["r2"]) == 0
    engine.allocate(["r2"], [9])
    engine.commit(["r2"], [9])
    assert engine.evict_window(["r2"]) == 1
    assert row_pages(engine, "r2", SWA) == [0, 0, 0, 0, 0, 6, 7, 8, 9]
    assert row_pages(engine, "r3", SWA) == [1, 2, 3, 4]
    assert refs_of(engine, 1, 2, 3, 4, group=SWA) == [1, 1, 1, 1]
    engine.abort("r2")
    engine.abort("r3")
    ends_clean(engine)


def block_back_in_its_request(offloading):
    """R1 of C31: block 3 at positions 0-3, out of the window of 8, then again at 12-15."""
    observer = watch(4, 8, groups=(CacheGroup("swa", window=8),))
    events = [
        admitted("r1", 1, 16, cursors=(0,)),
        allocated({1: 12}, [3, 1, 2]),
        committed({1: 12}),
        *([pinned("offload", [3])] if offloading else []),
        window_evicted(0, 1, 4, [3]),
    ]
    tell(observer, *events)
    return observer


def test_c31_a_batched_release_names_one_block_twice():
    """C31: the offload list of R1 has block 3 twice, and one release gives both entries back."""
    observer = block_back_in_its_request(offloading=False)
    tell(observer, allocated({1: 16}, [3]), committed({1: 16}))
    found = broken_by(observer, released("r1", 1, "finished", [1, 2, 3, 3]))
    assert found.id == "page-double-free"
    assert found.evidence["pages"] == [3]


def test_c31_an_offload_names_each_block_once():
    """C31: an offload whose list has block 3 twice is named when it is taken."""
    observer = block_back_in_its_request(offloading=False)
    tell(observer, allocated({1: 16}, [3]))
    found = broken_by(observer, pinned("offload", [3, 3]))
    assert found.id == "pinned-page-freed"
    assert found.evidence["pages"] == [3]


def test_c31_a_block_being_offloaded_does_not_come_back():
    """C31: block 3 is in quarantine while its first use is offloaded; to hand it out is named."""
    observer = block_back_in_its_request(offloading=True)
    assert in_state(observer, "QUARANTINED") == {3}
    found = broken_by(observer, allocated({1: 16}, [3]))
    assert found.id == "pinned-page-freed"
    assert found.evidence["pins_held"] == ["offload"]


def test_c31_counts_step_to_zero_once():
    """C31: a block that two offloads read becomes free once, with the last of them."""
    engine = run_engine(4, 4, groups=(CacheGroup("swa", window=8),))
    prefill(engine, "r1", list(range(16)))
    assert row_pages(engine, "r1") == [1, 2, 3, 4]
    engine.pin("offload, first use", [1], "store")
    assert engine.evict_window(["r1"]) == 2
    assert in_state(engine, "QUARANTINED") == {1}
    assert in_state(engine, "FREE") == {2}
    engine.unpin("offload, first use")
    assert in_state(engine, "FREE") == {1, 2}
    engine.allocate(["r1"], [20])
    assert row_pages(engine, "r1") == [0, 0, 3, 4, 1]
    engine.pin("offload, second use", [1], "store")
    engine.pin("offload, second use, other tier", [1], "store")
    engine.abort("r1")
    assert in_state(engine, "QUARANTINED") == {1}
    engine.unpin("offload, second use")
    assert in_state(engine, "QUARANTINED") == {1}
    engine.unpin("offload, second use, other tier")
    assert engine.ledger.spaces[0].free.num_free == 4
    assert sorted(engine.ledger.spaces[0].free.head(4).tolist()) == [1, 2, 3, 4]
    ends_clean(engine)
