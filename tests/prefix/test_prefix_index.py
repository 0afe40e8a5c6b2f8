"""The prefix index where a story says more than the model: hints, the window rule, depth."""

import numpy as np
import pytest

from kvlife.errors import ConfigError
from kvlife.prefix import ORIGIN, IndexLayout, PrefixIndex
from kvlife.prefix import index as index_module

FULL = IndexLayout((2,), (None,))


def none_locked(group, pages):
    return np.zeros(len(pages), np.bool_)


def locked_pages(*locked):
    return lambda group, pages: np.isin(pages, locked)


def ints(*values):
    return np.array(values, np.int32)


def publish(index, tokens, pages, seq=1, namespace=b"", start=None):
    tokens = ints(*tokens)
    extent = index.extent(tokens, namespace, start=start)
    return index.insert(extent, tokens, [ints(*pages)], seq)


def found_pages(index, *tokens, namespace=b""):
    return index.match(ints(*tokens), namespace).pages[0].tolist()


def test_a_second_publisher_is_told_the_canonical_pages():
    """The extent of tokens that are there holds the first publisher's pages, from its start on."""
    index = PrefixIndex(FULL)
    publish(index, [1, 2, 3, 4], [10, 11])
    extent = index.extent(ints(1, 2, 3, 4, 5, 6), b"")
    assert (extent.start_len, extent.found_len) == (0, 4)
    assert extent.pages[0].tolist() == [10, 11]
    index.insert(extent, ints(1, 2, 3, 4, 5, 6), [ints(20, 21, 22)], 2)
    assert found_pages(index, 1, 2, 3, 4, 5, 6) == [10, 11, 22]
    assert index.num_pages == (3,)


def test_partial_units_do_not_count():
    """Only whole units are found and published."""
    index = PrefixIndex(FULL)
    publish(index, [1, 2, 3], [10])
    assert index.match(ints(1, 2, 3), b"").matched_len == 2
    assert index.match(ints(1), b"").matched_len == 0


def test_namespaces_never_share():
    """The same tokens in another namespace are not found."""
    index = PrefixIndex(FULL)
    publish(index, [1, 2], [10], namespace=b"a")
    assert found_pages(index, 1, 2, namespace=b"b") == []
    publish(index, [1, 2], [11], namespace=b"b")
    assert found_pages(index, 1, 2, namespace=b"a") == [10]
    assert found_pages(index, 1, 2, namespace=b"b") == [11]


def test_equal_hashes_are_told_apart_by_tokens(monkeypatch):
    """With one hash for everything the index still answers exactly."""
    monkeypatch.setattr("kvlife.prefix.nodes.tag_of", lambda parent, unit: 0)
    index = PrefixIndex(FULL)
    for i in range(100):
        publish(index, [i, i + 1, 7, i], [2 * i + 1, 2 * i + 2])
    for i in range(100):
        assert found_pages(index, i, i + 1, 7, i) == [2 * i + 1, 2 * i + 2]
    assert found_pages(index, 5, 7) == []


def test_a_hint_outlives_a_split():
    """A split above or below a position leaves it good, in either part."""
    index = PrefixIndex(FULL)
    long = [1, 1, 2, 2, 3, 3, 4, 4]
    end = publish(index, long, [1, 2, 3, 4])
    middle = index.match(ints(*long[:4]), b"").position
    publish(index, [1, 1, 2, 2, 9, 9], [5, 6, 7])
    assert index.num_nodes == 3
    for hint, length in ((end, 8), (middle, 4)):
        extent = index.extent(ints(*long, 5, 5), b"", start=hint)
        assert (extent.start_len, extent.found_len) == (length, 8)


def test_a_hint_does_not_outlive_its_tail():
    """Where a tail was evicted and others took its place, an old hint falls back to the root."""
    index = PrefixIndex(FULL)
    hint = publish(index, [1, 1, 2, 2], [1, 2])
    index.remove(index.victims([1], none_locked))
    publish(index, [1, 1, 3, 3], [1, 4])
    extent = index.extent(ints(1, 1, 2, 2, 5, 5), b"", start=hint)
    assert (extent.start_len, extent.found_len) == (0, 2)


def test_a_hint_does_not_survive_its_node_being_reused():
    """A node's id that went to other tokens does not revive positions in the old one."""
    index = PrefixIndex(FULL)
    hint = publish(index, [1, 1], [1])
    index.remove(index.victims([1], none_locked))
    publish(index, [2, 2], [2])
    assert index.extent(ints(1, 1), b"", start=hint).found_len == 0
    index.clear()
    publish(index, [1, 1], [3])
    assert index.extent(ints(1, 1), b"", start=hint).start_len == 0


def test_a_hint_for_other_tokens_is_noticed():
    """A hint whose last unit is not in the tokens is not followed."""
    index = PrefixIndex(FULL)
    hint = publish(index, [1, 1], [1])
    assert index.extent(ints(2, 2, 3, 3), b"", start=hint).found_len == 0


def test_touching_a_stale_position_touches_nothing():
    """Recency goes to whom it belongs, or to nobody."""
    index = PrefixIndex(FULL)
    stale = publish(index, [1, 1], [1], seq=1)
    index.remove(index.victims([1], none_locked))
    publish(index, [2, 2], [2], seq=2)
    publish(index, [3, 3], [3], seq=3)
    index.touch(stale, 9)
    index.touch(ORIGIN, 10)
    assert index.victims([1], none_locked).pages[0].tolist() == [2]


def test_a_small_leaf_grows_and_a_large_one_gets_a_child(monkeypatch):
    """Appending copies at most what the limits allow: 2 units of 8 bytes, or twice the new."""
    monkeypatch.setattr(index_module, "MAX_COPY_BYTES", 16)
    monkeypatch.setattr(index_module, "MAX_COPY_RATIO", 2)
    index, tokens = PrefixIndex(FULL), []
    num_nodes = []
    for unit in range(5):
        tokens += [unit, unit]
        publish(index, tokens, range(1, unit + 2))
        num_nodes.append(index.num_nodes)
    assert num_nodes == [1, 1, 1, 2, 2]
    assert found_pages(index, *tokens) == [1, 2, 3, 4, 5]


def test_what_was_chosen_must_be_removed_before_anything_changes():
    """Victims and extents of an older state of the index are refused."""
    index = PrefixIndex(FULL)
    publish(index, [1, 1], [1])
    victims = index.victims([1], none_locked)
    extent = index.extent(ints(3, 3), b"")
    publish(index, [2, 2], [2])
    with pytest.raises(RuntimeError, match="has changed"):
        index.remove(victims)
    with pytest.raises(RuntimeError, match="has changed"):
        index.insert(extent, ints(3, 3), [ints(3)], 2)
    assert index.pages(0).tolist() == [1, 2]


def test_the_window_rule_by_hand():
    """With W = 4 and pages of 2, a hit of 8 needs [5, 8): without page 2 of it, 4 is the hit.

    Tokens 4 and 5 lie on the third page. A hit of 8 reads from 5 on, one of 6 from 3 on: both
    need it. A hit of 4 reads [1, 4), which is there.
    """
    index = PrefixIndex(IndexLayout((2, 2), (None, 4)))
    tokens = np.arange(8, dtype=np.int32)
    pages = [ints(1, 2, 3, 4), ints(11, 12, 0, 14)]
    index.insert(index.extent(tokens, b""), tokens, pages, 1)
    hit = index.match(tokens, b"")
    assert (hit.matched_len, hit.found_len) == (4, 8)
    assert hit.pages[1].tolist() == [11, 12]
    index.insert(index.extent(tokens, b""), tokens, [ints(5, 6, 7, 8), ints(0, 0, 13, 0)], 2)
    assert index.match(tokens, b"").matched_len == 8
    assert index.match(tokens, b"").pages[1].tolist() == [11, 12, 13, 14]


def test_the_floor_needs_its_window_pages():
    """A hit needs the pages of [0, floor) as well, as far as it reaches."""
    index = PrefixIndex(IndexLayout((2, 2), (None, 2)))
    tokens = np.arange(8, dtype=np.int32)
    pages = [ints(1, 2, 3, 4), ints(11, 0, 13, 14)]
    index.insert(index.extent(tokens, b""), tokens, pages, 1)
    assert index.match(tokens, b"", floor=0).matched_len == 8
    assert index.match(tokens, b"", floor=2).matched_len == 8
    assert index.match(tokens, b"", floor=3).matched_len == 2
    assert index.match(tokens, b"", floor=3).hit_len == 2
    assert index.match(tokens, b"", limit=7).matched_len == 6
    assert index.match(tokens, b"", limit=7).hit_len == 8


def test_a_match_keeps_its_pages_when_the_index_moves_on():
    """Pages that were answered do not change with holes and cuts made later."""
    index = PrefixIndex(IndexLayout((2, 2), (None, 8)))
    tokens = np.arange(4, dtype=np.int32)
    index.insert(index.extent(tokens, b""), tokens, [ints(1, 2), ints(3, 4)], 1)
    hit = index.match(tokens, b"")
    index.remove(index.window_victims(1, 1, none_locked))
    index.remove(index.victims([1, 0], none_locked))
    assert [pages.tolist() for pages in hit.pages] == [[1, 2], [3, 4]]
    assert not any(pages.flags.writeable for pages in hit.pages if pages.base is not None)


def test_a_chain_of_20000_nodes_needs_no_recursion(monkeypatch):
    """A very deep tree is built by hints, matched, touched, counted and evicted."""
    monkeypatch.setattr(index_module, "MAX_COPY_BYTES", -1)
    monkeypatch.setattr(index_module, "MAX_COPY_RATIO", 0)
    index = PrefixIndex(IndexLayout((1,), (None,)))
    tokens = np.arange(20_000, dtype=np.int32)
    position = None
    for end in range(1, 20_001):
        extent = index.extent(tokens, b"", start=position, upto_len=end)
        assert extent.start_len == end - 1
        position = index.insert(extent, tokens, [ints(end)], end)
    assert index.num_nodes == 20_000
    hit = index.match(tokens, b"")
    assert hit.pages[0].tolist() == list(range(1, 20_001))
    index.touch(hit.position, 20_001)
    assert index.evictable(0, locked_pages(10_000)) == 10_000
    victims = index.victims([20_000], locked_pages(10_000))
    assert victims.num_found == (10_000,)
    index.remove(victims)
    index.remove(index.victims([20_000], none_locked))
    assert index.num_nodes == 0


@pytest.mark.parametrize(
    ("sizes", "windows", "says"),
    [
        ((), (), "0 page sizes"),
        ((16,), (None, 4), "1 page sizes and 2 windows"),
        ((16, 6), (None, None), "page size 6 of group 1"),
        ((512,), (None,), "page size 512"),
        ((0,), (None,), "page size 0"),
        ((16,), (0,), "window of 0"),
    ],
)
def test_layouts_that_do_not_fit_are_refused(sizes, windows, says):
    """The error names the group and the rule."""
    with pytest.raises(ConfigError, match=says):
        IndexLayout(sizes, windows)


def test_the_base_group_is_the_first_full_one():
    """The base is derived, and another is refused."""
    assert IndexLayout((4, 2, 2), (9, None, None)).base == 1
    assert IndexLayout((4, 2), (9, 5)).base == 0
    with pytest.raises(ConfigError, match="pass 1"):
        IndexLayout((4, 2, 2), (9, None, None), 2)
