"""Eviction from the prefix index: what goes, in which order, and the memory that it frees."""

import tracemalloc

import numpy as np
import pytest

from kvlife.errors import ConfigError
from kvlife.prefix import POLICIES, IndexLayout, PrefixIndex, policy_named
from kvlife.prefix import eviction_order as order_module

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


def test_eviction_takes_exactly_what_is_asked_from_the_tail():
    """Three of five pages go, the last three, and the rest is found as before."""
    index = PrefixIndex(FULL)
    tokens = [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    publish(index, tokens, [1, 2, 3, 4, 5])
    victims = index.victims([3], none_locked)
    assert victims.num_found == (3,)
    assert sorted(victims.pages[0].tolist()) == [3, 4, 5]
    index.remove(victims)
    assert found_pages(index, *tokens) == [1, 2]


def test_choosing_changes_nothing():
    """Asked twice, the index names the same victims, and holds them until they are removed."""
    index = PrefixIndex(FULL)
    publish(index, [1, 1, 2, 2], [1, 2])
    publish(index, [1, 1, 3, 3], [1, 3])
    first = index.victims([3], none_locked)
    again = index.victims([3], none_locked)
    assert first.pages[0].tolist() == again.pages[0].tolist() == [2, 3, 1]
    assert index.num_pages == (3,)


def test_a_locked_page_keeps_what_is_before_it():
    """Nothing above a locked page goes; when it is let go, its leaf is first again."""
    index = PrefixIndex(FULL)
    publish(index, [1, 1, 2, 2], [1, 2], seq=1)
    publish(index, [3, 3], [3], seq=2)
    for _ in range(3):
        assert index.victims([9], locked_pages(2)).pages[0].tolist() == [3]
        assert index.evictable(0, locked_pages(2)) == 1
    assert index.victims([1], none_locked).pages[0].tolist() == [2]


def test_ties_go_by_node():
    """Leaves of equal age go in the order in which they were made."""
    index = PrefixIndex(FULL, "fifo")
    for i in range(5):
        publish(index, [i, i], [5 - i], seq=1)
    assert index.victims([5], none_locked).pages[0].tolist() == [5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        ("lru", [2, 3, 1, 4]),
        ("lfu", [4, 3, 1, 2]),
        ("fifo", [1, 2, 3, 4]),
        ("slru", [3, 4, 2, 1]),
    ],
)
def test_the_policies_order_by_hand(policy, order):
    """Four pages with three hits early, three hits late, one hit, and none rank as documented."""
    index = PrefixIndex(FULL, policy)
    at = {i: publish(index, [i, i], [i], seq=i) for i in range(1, 4)}
    for seq, page in enumerate([2, 2, 2, 3, 1, 1], start=10):
        index.touch(at[page], seq)
    publish(index, [4, 4], [4], seq=20)
    # Hits: page 1 two, page 2 three, page 3 one, page 4 none. Last use: 2 < 3 < 1 < 4.
    assert index.victims([4], none_locked).pages[0].tolist() == order


def test_more_leaves_than_candidates_keep_the_order(monkeypatch):
    """Evicted in small bites between touches, hundreds of leaves go exactly by last use."""
    monkeypatch.setattr(order_module, "MIN_CANDIDATES", 4)
    index, last_use, seq = PrefixIndex(FULL), {}, 0
    rng = np.random.default_rng(7)
    at = {}
    for page in range(1, 301):
        seq += 1
        at[page] = publish(index, [page, page], [page], seq)
        last_use[page] = seq
    while last_use:
        for page in rng.choice(sorted(last_use), min(3, len(last_use)), replace=False).tolist():
            seq += 1
            index.touch(at[page], seq)
            last_use[page] = seq
        expected = sorted(last_use, key=last_use.get)[:5]
        victims = index.victims([5], none_locked)
        assert victims.pages[0].tolist() == expected
        index.remove(victims)
        for page in expected:
            del last_use[page]


def test_memory_is_given_back():
    """What 3,000 nodes took is free again once they are evicted one by one, and once cleared."""
    layout = IndexLayout((16, 16), (None, 32))
    rng = np.random.default_rng(1)
    prompts = rng.integers(0, 99, (3000, 160), dtype=np.int32)

    def fill(index):
        for i, tokens in enumerate(prompts):
            pages = [np.arange(10 * i + 1, 10 * i + 11, dtype=np.int32)] * 2
            index.insert(index.extent(tokens, b""), tokens, pages, i)

    index = PrefixIndex(layout)
    tracemalloc.start()
    try:
        fill(index)
        held, _ = tracemalloc.get_traced_memory()
        while index.num_nodes:
            index.remove(index.victims([7, 0], none_locked))
        evicted, _ = tracemalloc.get_traced_memory()
        fill(index)
        index.clear()
        cleared, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held > 3000 * 720
    # The interpreter keeps some freed tuples and ints for itself.
    assert evicted < held // 10
    assert cleared < held // 10
    assert index.num_pages == (0, 0)


def test_a_long_tail_is_repacked_by_halves():
    """Evicting a leaf page by page frees its memory on the way, and copies little."""
    index = PrefixIndex(IndexLayout((1,), (None,)))
    publish(index, range(4096), range(1, 4097))
    sizes = []
    for _ in range(4095):
        index.remove(index.victims([1], none_locked))
        (body,) = (body for body in index._store.bodies if body)
        sizes.append(len(body))
    assert sizes[0] == 4096 * 8
    assert len(set(sizes)) <= 13
    assert all(size <= 2 * 8 * (4095 - i) for i, size in enumerate(sizes))


def test_unknown_policies_are_refused_by_name():
    """The error names the known ones."""
    with pytest.raises(ConfigError, match="'lifo' does not exist: use one of fifo, lfu, lru, slru"):
        PrefixIndex(FULL, "lifo")
    assert sorted(POLICIES) == ["fifo", "lfu", "lru", "slru"]


def test_a_policy_of_ones_own_can_be_given():
    """Whatever ranks nodes and says what it reads serves: here, newest first."""

    class LastInFirstOut:
        reads = frozenset({"created"})

        def priority(self, columns, nodes):
            return ~columns.created[nodes].astype(np.uint64)

    index = PrefixIndex(FULL, LastInFirstOut())
    for i in range(1, 4):
        publish(index, [i, i], [i], seq=i)
    assert index.victims([2], none_locked).pages[0].tolist() == [3, 2]
    assert policy_named("lru").reads == {"last_use"}
