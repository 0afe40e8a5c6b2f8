"""Aliasing and use after free: C05, C07, C09."""

import numpy as np
from scenes import (
    admitted,
    allocated,
    broken_by,
    committed,
    ends_clean,
    in_state,
    ladder,
    pinned,
    prefill,
    published,
    refs_of,
    refused,
    released,
    retracted,
    rolled_back,
    row_pages,
    run_engine,
    tell,
    watch,
    watch_on,
)

from kvlife.errors import OutOfPages
from kvlife.events import FIELDS, Allocated

PROMPT = [11, 12, 13, 14, 15, 16, 17, 18]


def twice_the_same_prompt(observer):
    """C05 up to step 2: R1 and R2 computed the same 8 tokens, and R1's pages 1-8 are published."""
    tell(
        observer,
        admitted("r1", 1, 8),
        admitted("r2", 2, 8),
        allocated({1: 8}, range(1, 9)),
        allocated({2: 8}, range(9, 17)),
        committed({1: 8, 2: 8}),
        published(1, 8, range(101, 109)),
    )
    return observer


def test_c05_duplicates_freed_under_a_running_row():
    """C05: an insert frees the duplicate pages 9-16 while the row of R2 still lists them.

    A publish lets duplicates go by rebinds alone, so the bare free is a roll-back to the same end.
    """
    observer = twice_the_same_prompt(watch(1, 24))
    found = broken_by(observer, rolled_back(2, 8, 8, range(9, 17)))
    assert found.id == "allocated-covers-pages"
    assert found.evidence["pages"] == list(range(9, 17))
    assert found.evidence["holders"] == ["request r2"]


def test_c05_a_rebind_onto_other_content_is_named():
    """C05: R2's row rewritten to canonical pages that hold other tokens is named at its insert."""
    observer = twice_the_same_prompt(watch(1, 24))
    links = np.array([(0, idx, 9 + idx, 8 - idx) for idx in range(8)], np.int32)
    found = broken_by(observer, published(2, 8, range(101, 109), rebinds=links))
    assert found.id == "allocated-covers-pages"
    assert found.evidence["new_pages"] == [8, 7, 6, 5, 4, 3, 2, 1]


def test_c05_duplicates_published_beside_the_canonical_pages():
    """C05: an insert that publishes the duplicates as well puts two pages under one key."""
    observer = twice_the_same_prompt(watch_on(1, 24))
    observer.observe(published(2, 8, range(101, 109)))
    observer.audit()
    assert observer.checker.stats.first.id == "index-agrees"


def test_c05_the_row_is_rebound_before_its_own_pages_go():
    """C05: R2's row is rewritten to the canonical pages 1-8, then its duplicates 9-16 are freed."""
    engine = run_engine(1, 24)
    engine.admit("r1", PROMPT)
    engine.admit("r2", PROMPT)
    engine.allocate(["r1", "r2"], [8, 8])
    engine.commit(["r1", "r2"], [8, 8])
    assert row_pages(engine, "r2") == list(range(9, 17))
    assert engine.protect("r1", PROMPT) == 8
    assert engine.protect("r2", PROMPT) == 8
    assert row_pages(engine, "r2") == list(range(1, 9))
    assert ladder(engine, "r2") == (8, 8, 8)
    assert refs_of(engine, *range(1, 9)) == [2] * 8
    assert in_state(engine, "FREE") == set(range(9, 25))
    prefill(engine, "r3", [21, 22, 23])
    assert set(row_pages(engine, "r3")).isdisjoint(row_pages(engine, "r2"))
    assert engine.evict(24) == 0  # R1 and R2 lock what they reference.
    for rid, tokens in (("r1", PROMPT), ("r2", PROMPT), ("r3", [21, 22, 23])):
        engine.finish(rid, tokens)
    ends_clean(engine)


def prefilled_encoder_row():
    """R1 of C07: 6 encoder and 2 decoder tokens, row positions 0-7 on pages 1 and 2."""
    observer = watch(4, 8)
    tell(observer, admitted("r1", 1, 8), allocated({1: 8}, [1, 2]), committed({1: 8}))
    return observer


def test_c07_no_event_can_say_in_which_slot_a_token_lies():
    """C07: a wrong slot for a row position cannot be written down.

    The fault is a slot computed from the decoder's length beside the page table. An allocation says
    how long a row is and which pages it takes, and has no field for a slot: position p of a row
    lies at table[p // P] * P + p % P, for encoder and decoder tokens alike.
    """
    fields = [field.name for field in FIELDS[Allocated]]
    assert fields == ["rows", "allocated_len", "pages", "evicted_len"]
    engine = run_engine(4, 8)
    prefill(engine, "r1", PROMPT)
    engine.decode(engine.batch(["r1"]))
    table = row_pages(engine, "r1")
    slots = engine.slots(["r1"], [0], [9], "full").tolist()
    assert slots == [table[p // 4] * 4 + p % 4 for p in range(9)]
    assert len(set(slots)) == 9


def test_c07_no_new_page_for_the_ninth_position():
    """C07: a decode that takes no page for row position 8 is named: the row needs a third page."""
    found = broken_by(prefilled_encoder_row(), allocated({1: 9}, []))
    assert found.id == "allocated-covers-pages"
    assert found.evidence["rows"] == [1]


def test_c07_the_first_page_again_for_the_ninth_position():
    """C07: page 1 given again for row position 8 is a double allocation at the decode."""
    found = broken_by(prefilled_encoder_row(), allocated({1: 9}, [1]))
    assert found.id == "page-double-alloc"
    assert found.evidence["pages"] == [1]
    assert found.evidence["owners"] == [["request r1"]]


def test_c07_a_release_that_names_a_page_twice():
    """C07: the release that takes positions 0, 4, 8 as pages 1, 2, 1 frees page 1 twice."""
    observer = prefilled_encoder_row()
    tell(observer, allocated({1: 9}, [3]), committed({1: 9}))
    found = broken_by(observer, released("r1", 1, "finished", [1, 2, 1]))
    assert found.id == "page-double-free"
    assert found.evidence["pages"] == [1]


def test_c07_slots_follow_the_length_of_the_row():
    """C07: decode writes position 8 into page 3, slot 12, and the release frees each page once."""
    engine = run_engine(4, 8)
    engine.admit("r1", PROMPT)
    assert engine.allocate(["r1"], [8]).tolist() == [4, 5, 6, 7, 8, 9, 10, 11]
    engine.commit(["r1"], [8])
    assert engine.decode(engine.batch(["r1"])).tolist() == [12]
    assert row_pages(engine, "r1") == [1, 2, 3]
    engine.abort("r1")
    assert in_state(engine, "FREE") == set(range(1, 9))
    ends_clean(engine)


def test_c09_a_queued_store_reads_a_page_given_to_another():
    """C09: a preempted request's page is handed to R2 while a queued store still reads it.

    The free itself cannot be written: a pinned page that its row lets go is in quarantine, by the
    state machine. So the fault shows where such a page is handed out, one step after the report's.
    """
    observer = watch(4, 8)
    tell(
        observer,
        admitted("r1", 1, 16),
        allocated({1: 16}, [1, 2, 3, 4]),
        committed({1: 16}),
        pinned("key K <- page 3", [3]),
        retracted("r1", 1, [1, 2, 3, 4]),
    )
    assert in_state(observer, "QUARANTINED") == {3}
    assert in_state(observer, "FREE") == {1, 2, 4, 5, 6, 7, 8}
    tell(observer, admitted("r2", 1, 4))
    found = broken_by(observer, allocated({1: 4}, [3]))
    assert found.id == "pinned-page-freed"
    assert found.evidence["pages"] == [3]
    assert found.evidence["pins_held"] == ["key K <- page 3"]


def test_c09_preemption_quarantines_what_a_store_reads():
    """C09: page 3 stays untouched until the store is done, however short memory is."""
    engine, tokens = run_engine(4, 4), list(range(16))
    prefill(engine, "r1", tokens)
    engine.pin("key K <- page 3", [3], "store")
    engine.retract("r1")
    assert in_state(engine, "QUARANTINED") == {3}
    engine.admit("r2", [31] * 16)
    with refused(engine, OutOfPages, "held by pinned 1"):
        engine.allocate(["r2"], [16])
    engine.allocate(["r2"], [12])
    assert sorted(row_pages(engine, "r2")) == [1, 2, 4]
    engine.unpin("key K <- page 3")
    assert in_state(engine, "FREE") == {3}
    engine.allocate(["r2"], [16])
    assert row_pages(engine, "r2")[3] == 3
    engine.abort("r2")
    engine.abort("r1")
    ends_clean(engine)
