"""The whole prefix index, step by step against a model of dicts."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from naive_prefix_index import NaiveIndex

from kvlife.prefix import IndexLayout, PrefixIndex
from kvlife.prefix import index as index_module

LAYOUTS = [
    ((1,), (None,)),
    ((2,), (None,)),
    ((16,), (None,)),
    ((256,), (None,)),
    ((1, 1), (None, 3)),
    ((2, 4), (None, 5)),
    ((4, 2), (None, 5)),
    ((16, 4, 2), (None, 20, 7)),
    ((2,), (4,)),
    ((2, 4), (9, 5)),
    ((4, 2, 2), (6, None, None)),
]
NAMESPACES = [b"", b"lora-1"]
UNITS = st.lists(st.integers(0, 3), min_size=0, max_size=7)


def tokens_of(symbols, align):
    """Units that differ in their last token only, or in their first, where there are two."""
    units = np.full((len(symbols), align), 7, np.int32)
    for i, symbol in enumerate(symbols):
        units[i, -1 if symbol < 2 else 0] = symbol
    return units.reshape(-1)


class IndexMachine(RuleBasedStateMachine):
    """Each rule does the same to the index and to the model, and compares."""

    @initialize(
        layout=st.sampled_from(LAYOUTS),
        policy=st.sampled_from(["lru", "lfu", "fifo", "slru"]),
        extends=st.booleans(),
    )
    def begin(self, layout, policy, extends):
        page_sizes, windows = layout
        self.copy_limits = index_module.MAX_COPY_BYTES, index_module.MAX_COPY_RATIO
        index_module.MAX_COPY_BYTES = 1 << 30 if extends else -1
        index_module.MAX_COPY_RATIO = 0
        self.layout = IndexLayout(page_sizes, windows)
        self.index = PrefixIndex(self.layout, policy)
        self.model = NaiveIndex(page_sizes, windows, policy, extends)
        self.seq = 0
        self.positions = []

    def teardown(self):
        if hasattr(self, "copy_limits"):
            index_module.MAX_COPY_BYTES, index_module.MAX_COPY_RATIO = self.copy_limits

    def path_of(self, symbols):
        tokens = tokens_of(symbols, self.layout.align)
        return tokens, self.model.split_units(tokens.tolist())

    def fresh_pages(self, group, count):
        used = set(self.model.all_pages(group)) | self.handed[group]
        pages = []
        page = 1
        while len(pages) < count:
            if page not in used:
                pages.append(page)
            page += 1
        self.handed[group].update(pages)
        return pages

    def row_pages(self, data, first, end, spare_holes):
        """Own pages of a row over units [first, end); window pages may be missing."""
        self.handed = [set() for _ in self.layout.page_sizes]
        pages = []
        for g, window in enumerate(self.layout.windows):
            count = (end - first) * self.layout.pages_per_unit[g]
            own = self.fresh_pages(g, count)
            if window is not None and not spare_holes:
                present = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
                own = [p if there else 0 for p, there in zip(own, present, strict=True)]
            pages.append(np.array(own, np.int32))
        return pages

    def draw_locked(self, data):
        every = [(g, p) for g in range(len(self.layout.windows)) for p in self.model.all_pages(g)]
        chosen = set(data.draw(st.lists(st.sampled_from(every), max_size=4))) if every else set()

        def is_locked(group, pages):
            assert pages.dtype == np.int32
            assert (pages > 0).all()
            return np.array([(group, p) in chosen for p in pages.tolist()], np.bool_)

        return chosen, is_locked

    @rule(data=st.data(), symbols=UNITS, namespace=st.sampled_from(NAMESPACES), whole=st.booleans())
    def publish(self, data, symbols, namespace, whole):
        tokens, path = self.path_of(symbols)
        hints = [
            (position, known)
            for position, space, known in self.positions
            if space == namespace and path[: len(known)] == known
        ]
        start, known = data.draw(st.sampled_from([(None, ()), *hints]))
        extent = self.index.extent(tokens, namespace, start=start, upto_len=len(tokens))
        align = self.layout.align
        assert extent.found_len == self.model.found(namespace, path) * align
        assert extent.start_len in (0, len(known) * align)
        first = extent.start_len // align
        found = path[: extent.found_len // align]
        for g, pages in enumerate(extent.pages):
            assert pages.tolist() == self.model.group_pages(namespace, found, g, first)
        self.seq += 1
        pages = self.row_pages(data, first, len(path), whole)
        position = self.index.insert(extent, tokens, pages, self.seq)
        end = self.model.insert(namespace, path, first, pages, self.seq)
        assert position.depth == end
        self.positions.append((position, namespace, path[:end]))

    @rule(
        symbols=UNITS,
        namespace=st.sampled_from(NAMESPACES),
        limit=st.none() | st.integers(0, 12),
        floor=st.integers(0, 6),
        use=st.booleans(),
    )
    def match(self, symbols, namespace, limit, floor, use):
        tokens, path = self.path_of(symbols)
        align = self.layout.align
        if limit is not None:
            limit = limit * align // 2
        hit = self.index.match(tokens, namespace, limit=limit, floor=floor)
        matched = path[: self.model.matched(namespace, path, limit, floor)]
        assert hit.matched_len == len(matched) * align
        assert hit.hit_len == self.model.matched(namespace, path, None, floor) * align
        assert hit.found_len == self.model.found(namespace, path) * align
        for g, pages in enumerate(hit.pages):
            assert pages.dtype == np.int32
            assert pages.tolist() == self.model.group_pages(namespace, matched, g)
        self.positions.append((hit.position, namespace, matched))
        if use:
            self.seq += 1
            self.index.touch(hit.position, self.seq)
            self.model.touch(namespace, matched, self.seq)

    @rule(data=st.data(), commit=st.booleans())
    def evict(self, data, commit):
        need = [
            data.draw(st.integers(0, 3 * per if full is None else 2))
            for per, full in zip(self.layout.pages_per_unit, self.layout.windows, strict=True)
        ]
        chosen, is_locked = self.draw_locked(data)
        victims = self.index.victims(need, is_locked)
        cuts, pages = self.model.victims(need, chosen)
        assert [(cut.node, cut.keep) for cut in victims.cuts] == cuts
        assert [sorted(p.tolist()) for p in victims.pages] == [sorted(p) for p in pages]
        assert victims.num_found == tuple(map(len, pages))
        if commit:
            self.index.remove(victims)
            self.model.remove_cuts(cuts)

    @precondition(lambda self: self.layout.window_groups)
    @rule(data=st.data(), count=st.integers(0, 5), commit=st.booleans(), first=st.booleans())
    def evict_window_pages(self, data, count, commit, first):
        group = data.draw(st.sampled_from(self.layout.window_groups))
        chosen, is_locked = self.draw_locked(data)
        besides, cuts = None, []
        if first and self.layout.full_groups:
            need = [1 if g == self.layout.base else 0 for g in range(self.layout.num_groups)]
            besides = self.index.victims(need, is_locked)
            cuts, pages = self.model.victims(need, chosen)
            chosen |= {(g, p) for g, group_pages in enumerate(pages) for p in group_pages}
        victims = self.index.window_victims(group, count, is_locked, besides=besides)
        expected = self.model.window_victims(group, count, chosen)
        assert victims.pages[group].tolist() == expected
        if commit:
            self.index.remove(*([besides] if besides else []), victims)
            self.model.remove_window_pages(group, set(expected))
            self.model.remove_cuts(cuts)

    @rule()
    def clear(self):
        self.index.clear()
        self.model.nodes.clear()
        self.model.reset_when_empty()

    @rule(data=st.data())
    def count_evictable(self, data):
        chosen, is_locked = self.draw_locked(data)
        for g in range(self.layout.num_groups):
            assert self.index.evictable(g, is_locked) == self.model.evictable(g, chosen)

    @invariant()
    def holds_the_same(self):
        if not hasattr(self, "index"):
            return
        assert self.index.num_nodes == len(self.model.nodes)
        for g in range(self.layout.num_groups):
            held = self.model.all_pages(g)
            assert self.index.pages(g).tolist() == held
            assert self.index.num_pages[g] == len(held)


@pytest.mark.soak
def test_index_equals_the_naive_model():
    """Every answer and every choice of the index is the model's, whatever came before."""
    run_state_machine_as_test(IndexMachine)
