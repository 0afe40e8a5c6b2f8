"""Zero tokens, nothing allocated: C76."""

import pytest
from scenes import (
    admitted,
    allocated,
    broken_by,
    committed,
    ends_clean,
    in_state,
    ladder,
    prefill,
    published,
    refused,
    run_engine,
    tell,
    unchanged,
    watch,
)

from kvlife.errors import BadArgument, BadLength, BadTokens


def test_c76_a_key_of_three_tokens_is_published_as_a_page():
    """C76: three tokens that go on as if they were a page are named when they are published."""
    observer = watch(4, 8)
    tell(observer, admitted("r1", 1, 3), allocated({1: 3}, [1]), committed({1: 3}))
    found = broken_by(observer, published(1, 3, [101]))
    assert found.id == "protected-aligned"
    assert found.evidence["protected"] == [3]


def test_c76_a_key_for_an_empty_range_is_named():
    """C76: an empty range that carries the key of an "empty first page" is named."""
    observer = watch(4, 8)
    tell(observer, admitted("r1", 1, 3), allocated({1: 3}, [1]), committed({1: 3}))
    assert broken_by(observer, published(1, 0, [101])).id == "index-agrees"


@pytest.mark.parametrize("tokens", [[], [1], [1, 2, 3]])
def test_c76_a_match_below_one_page_finds_nothing(tokens):
    """C76: a match of less than a page is 0 and no change, whatever the tree has."""
    engine = run_engine(4, 8)
    for _ in range(2):
        with unchanged(engine):
            hit = engine.match(tokens)
        assert (hit.matched_len, hit.prefix_len, hit.pages[0].tolist()) == (0, 0, [])
        engine.abort(f"never admitted {engine.next_seq}")
        prefill(engine, f"r{engine.next_seq}", [1, 2, 3, 4, 5])
        engine.finish(next(iter(engine.ledger.requests)), [1, 2, 3, 4, 5])
    ends_clean(engine)


def test_c76_empty_ranges_are_no_ops():
    """C76: insert, extend, commit, trim and free of an empty range return and make no event."""
    engine = run_engine(4, 8)
    with unchanged(engine):
        assert engine.flush() == 0
        assert engine.evict(0) == 0
        assert engine.evict(8) == 0
    engine.admit("r1", [1, 2, 3])
    with unchanged(engine):
        engine.allocate(["r1"], [0])
        engine.commit(["r1"], [0])
        assert engine.protect("r1", []) == 0
    engine.allocate(["r1"], [3])
    engine.commit(["r1"], [3])
    with unchanged(engine):
        assert engine.allocate(["r1"], [3]).tolist() == []
        engine.commit(["r1"], [3])
        engine.roll_back(["r1"], [3])
        assert engine.protect("r1", [1, 2, 3]) == 0
        assert engine.evict_window(["r1"]) == 0
    assert ladder(engine, "r1") == (0, 3, 3)
    assert engine.finish("r1", [1, 2, 3]) == 0
    assert in_state(engine, "FREE") == set(range(1, 9))
    ends_clean(engine)


def test_c76_what_has_no_meaning_is_refused():
    """C76: an empty prompt, an empty batch and a negative length are refused and change nothing."""
    engine = run_engine(4, 8)
    with refused(engine, BadTokens, "is empty"):
        engine.admit("r1", [])
    engine.admit("r1", [1, 2, 3])
    with refused(engine, BadArgument, "empty batch"):
        engine.allocate([], [])
    with refused(engine, BadLength, "must lie in"):
        engine.allocate(["r1"], [-1])
    with refused(engine, BadLength, "num_pages"):
        engine.evict(-1)
    engine.abort("r1")
    ends_clean(engine)


def test_c76_sizes_are_sums_over_pages():
    """C76: 7 published tokens are one page of 4, evictable as one page."""
    engine, tokens = run_engine(4, 8), [1, 2, 3, 4, 5, 6, 7]
    prefill(engine, "r1", tokens)
    assert engine.finish("r1", tokens) == 4
    assert engine.num_evictable() == 1
    assert engine.evict(8) == 1
    ends_clean(engine)
