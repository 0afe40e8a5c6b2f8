"""External caches, pins and reference counts: C61, C63, C78."""

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
    unpinned,
    watch,
)

from kvlife.events import Marked

CHUNKS = list(range(1, 11))


def looked_up():
    """R1 of C61: 10 cached chunks of a prefix, pinned for R1 by a look-up."""
    observer = watch(4, 16)
    tell(
        observer,
        admitted("r0", 2, 40),
        allocated({2: 40}, CHUNKS),
        committed({2: 40}),
        published(2, 40, range(101, 111)),
        released("r0", 2, "finished", CHUNKS),
        admitted("r1", 1, 41, CHUNKS, prefix_len=40),
        pinned("look-up of r1", CHUNKS, kind="look-up", owner="r1"),
    )
    return observer


def test_c61_a_look_up_pin_outlives_its_request():
    """C61: R1 retrieves nothing and ends, and the 10 pins of its look-up have no holder."""
    observer = looked_up()
    tell(observer, allocated({1: 41}, [11]), committed({1: 41}))
    found = broken_by(observer, released("r1", 1, "finished", [*CHUNKS, 11]))
    assert found.id == "refs-balance"
    assert found.evidence["pins"] == ["look-up of r1"]
    assert found.evidence["pages"] == CHUNKS


def test_c61_a_pin_ends_with_its_request():
    """C61: finish ends the look-up's pin, used or not, and the 10 chunks can be evicted."""
    engine, tokens = run_engine(4, 16), list(range(41))
    prefill(engine, "r0", tokens[:40])
    engine.finish("r0", tokens[:40])
    assert engine.admit("r1", tokens).prefix_len == 40
    engine.pin("look-up of r1", CHUNKS, "look-up", owner="r1")
    engine.allocate(["r1"], [41])
    engine.commit(["r1"], [41])
    assert engine.num_evictable() == 0
    engine.finish("r1", tokens)
    assert engine.stats().pins == 0
    assert engine.num_evictable() == 10
    assert engine.evict(10) == 10
    ends_clean(engine)


def test_c61_every_end_of_a_request_ends_its_pins():
    """C61: abort, retract and a session's save end the pin as well, in the same group of events."""
    engine = run_engine(4, 16)
    for number, end in enumerate(("abort", "retract", "save")):
        rid = f"r{number}"
        prefill(engine, rid, [number] * 8)
        engine.pin(f"look-up of {rid}", row_pages(engine, rid), "look-up", owner=rid)
        if end == "save":
            engine.session_save("s1", rid, 8)
            engine.session_close("s1")
        else:
            getattr(engine, end)(rid)
        assert engine.ledger.pins == {}
        assert in_state(engine, "FREE") == set(range(1, 17))
    engine.abort("r1")
    ends_clean(engine)


OFFLOADS = {"offload 1": [1, 2], "offload 2": [3, 4], "offload 3": [5, 6]}


def offloading(owner):
    """R1 of C63: pages 1-6, three offloads pending."""
    observer = watch(4, 8)
    tell(
        observer,
        admitted("r1", 1, 24),
        allocated({1: 24}, range(1, 7)),
        committed({1: 24}),
        *(pinned(name, pages, owner=owner) for name, pages in OFFLOADS.items()),
    )
    return observer


def test_c63_the_record_is_removed_with_operations_pending():
    """C63: R1's record goes while the three offloads that it owns are pending."""
    found = broken_by(offloading("r1"), released("r1", 1, "finished", range(1, 7)))
    assert found.id == "refs-balance"
    assert found.evidence["num_pins"] == 3
    assert found.evidence["pins"] == list(OFFLOADS)


def test_c63_nobody_counts_the_ends_of_the_offloads():
    """C63: R1's finish is known and the ends of its offloads are not, so pages 1-6 stay taken."""
    observer = offloading(None)
    tell(observer, released("r1", 1, "finished", range(1, 7)))
    assert in_state(observer, "QUARANTINED") == {1, 2, 3, 4, 5, 6}
    found = broken_by(observer, Marked("idle", idle=True))
    assert found.id == "idle-no-leak"
    assert found.evidence["pins"] == list(OFFLOADS)


def test_c63_the_last_end_frees_the_pages():
    """C63: a finished request's pages wait for their offloads, and each end frees its own."""
    engine, tokens = run_engine(4, 8), list(range(24))
    prefill(engine, "r1", tokens)
    for name, pages in OFFLOADS.items():
        engine.pin(name, pages, "offload")
    engine.finish("r1", tokens, keep_len=0)
    assert in_state(engine, "QUARANTINED") == {1, 2, 3, 4, 5, 6}
    left = {1, 2, 3, 4, 5, 6}
    for name, pages in OFFLOADS.items():
        engine.unpin(name)
        left -= set(pages)
        assert in_state(engine, "QUARANTINED") == left
    assert in_state(engine, "FREE") == set(range(1, 9))
    ends_clean(engine)


def copying():
    """R0 of C78 is gone, and the copy of its page 5 to the host is pending."""
    observer = watch(4, 8)
    tell(
        observer,
        admitted("r0", 1, 4),
        allocated({1: 4}, [5]),
        committed({1: 4}),
        pinned("page 5 -> host", [5], kind="copy"),
        released("r0", 1, "finished", [5]),
        admitted("r1", 2, 4),
    )
    return observer


def test_c78_a_page_is_reused_under_a_pending_copy():
    """C78: R1 gets page 5 while the copy of R0's content from it is pending."""
    found = broken_by(copying(), allocated({2: 4}, [5]))
    assert found.id == "pinned-page-freed"
    assert found.evidence["pages"] == [5]
    assert found.evidence["pins_held"] == ["page 5 -> host"]


def test_c78_a_cached_page_is_evicted_under_a_pending_copy():
    """C78: where R0's page is published, evicting it under the copy is what is named."""
    observer = watch(4, 8)
    tell(
        observer,
        admitted("r0", 1, 4),
        allocated({1: 4}, [5]),
        committed({1: 4}),
        published(1, 4, [105]),
        pinned("page 5 -> host", [5], kind="copy"),
        released("r0", 1, "finished", [5]),
    )
    found = broken_by(observer, evicted("pressure", [5]))
    assert found.id == "evicted-while-locked"
    assert found.also["pinned-page-freed"]["pages"] == [5]


def test_c78_after_the_copy_the_page_is_free():
    """C78: once the copy's end is reported, page 5 may be R1's."""
    observer = copying()
    tell(observer, unpinned("page 5 -> host", [5]), allocated({2: 4}, [5]))
    assert row_pages(observer, "r1") == [5]
    assert refs_of(observer, 5) == [1]


def test_c78_the_pool_itself_keeps_the_source_of_a_copy():
    """C78: no request gets a page that a copy reads, however many external tokens it loads."""
    engine, tokens = run_engine(4, 2), [1, 2, 3, 4]
    prefill(engine, "r0", tokens)
    assert row_pages(engine, "r0") == [1]
    engine.pin("page 1 -> host", [1], "copy")
    engine.finish("r0", tokens)
    prefill(engine, "r1", [5, 6, 7, 8])
    assert row_pages(engine, "r1") == [2]
    assert engine.evict(1) == 0
    engine.unpin("page 1 -> host")
    engine.allocate(["r1"], [8])
    assert row_pages(engine, "r1") == [2, 1]
    engine.abort("r1")
    ends_clean(engine)
