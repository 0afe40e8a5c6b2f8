"""The prefix index: finds cached pages by the tokens they hold, exactly."""

from collections.abc import Sequence

import numpy as np

from kvlife.prefix.choosing import (
    Haul,
    also_locked,
    num_evictable,
    take_leaf_tails,
    take_window_pages,
)
from kvlife.prefix.eviction_order import EvictionOrder, holds_window_pages, is_leaf
from kvlife.prefix.layout import IndexLayout, Pages
from kvlife.prefix.nodes import NodeStore, Part, trim
from kvlife.prefix.policies import EvictionPolicy, policy_named
from kvlife.prefix.results import ORIGIN, Extent, Locked, Match, Position, Victims
from kvlife.prefix.window_rule import usable_units

MAX_COPY_BYTES = 16384
MAX_COPY_RATIO = 4
"""A leaf is extended in place while copying it costs no more than this, or this times the new."""


class PrefixIndex:
    """A radix tree over units of tokens, one tree a namespace; it compares tokens, never hashes.

    Tokens are int32 arrays, one-dimensional and contiguous, as `as_tokens` makes them; only their
    whole units count. It is not thread-safe. `match`, `extent`, `victims`, `window_victims` and
    `evictable` change nothing that can be seen; `touch` changes recency and hits only.
    """

    def __init__(self, layout: IndexLayout, policy: str | EvictionPolicy = "lru") -> None:
        """Make an empty index; ConfigError for the name of a policy that does not exist."""
        self._layout = layout
        rule = policy_named(policy) if isinstance(policy, str) else policy
        self._store = NodeStore(layout, rule.reads)
        columns = self._store.columns
        self._leaves = EvictionOrder(columns, rule, is_leaf)
        self._window_holders = {
            g: EvictionOrder(columns, rule, holds_window_pages(w))
            for w, g in enumerate(layout.window_groups)
        }
        self._orders = (self._leaves, *self._window_holders.values())
        self._num_pages = [0] * layout.num_groups
        self._version = 0

    @property
    def layout(self) -> IndexLayout:
        """The layout it was made with."""
        return self._layout

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return self._store.num_nodes

    @property
    def num_pages(self) -> tuple[int, ...]:
        """How many pages of each group the index holds."""
        return tuple(self._num_pages)

    def pages(self, group: int) -> Pages:
        """Return all pages of a group in the index, sorted."""
        held = self._store.all_pages(self._store.nodes(), group)
        return np.sort(held[held != 0])

    def match(
        self, tokens: Pages, namespace: bytes, *, limit: int | None = None, floor: int = 0
    ) -> Match:
        """Find the longest usable hit.

        `limit` bounds it, and `floor` is the length whose window pages must all be there, both in
        tokens.
        """
        layout, store = self._layout, self._store
        units = len(tokens) // layout.align
        root = store.roots.get(namespace)
        if root is None or not units:
            return Match(0, 0, 0, _no_pages(layout), ORIGIN)
        parts, found = store.walk(tokens.view(np.uint8).data, units, root, 0)
        allowed = found if limit is None else min(found, max(0, limit) // layout.align)
        hit, matched = found, allowed
        if layout.window_groups and found:
            held = store.pages(parts)
            hit = usable_units(layout, held, found, floor)
            matched = hit if hit <= allowed else usable_units(layout, held, allowed, floor)
        trim(parts, found - matched)
        if not parts:
            return Match(0, hit * layout.align, found * layout.align, _no_pages(layout), ORIGIN)
        return Match(
            matched * layout.align,
            hit * layout.align,
            found * layout.align,
            store.pages(parts),
            store.position(parts[-1][0], matched),
        )

    def touch(self, position: Position, seq: int) -> None:
        """Count a hit of every node on the path to a position, and a use at `seq`.

        A stale position is no longer in the tree, and touches nothing.
        """
        node = self._store.resolve(position)
        if node is None:
            return
        self._store.columns.hit_path(node, seq)
        self._note(node)
        if self._window_holders:
            # Any node above can hold window pages; none of them is a leaf.
            while node := self._store.columns.parent_at[node]:
                for order in self._window_holders.values():
                    order.note(node)

    def extent(
        self,
        tokens: Pages,
        namespace: bytes,
        *,
        start: Position | None = None,
        upto_len: int | None = None,
    ) -> Extent:
        """Find how far [0, upto_len) is in the tree, whatever window pages are gone.

        `start` is where an earlier answer for these tokens ended; if it is stale, or beyond
        `upto_len`, the walk begins at the root, and `start_len` is 0.
        """
        layout, store = self._layout, self._store
        length = len(tokens) if upto_len is None else min(upto_len, len(tokens))
        units = max(0, length) // layout.align
        if not units:
            return self._extent(0, 0, [], ORIGIN, namespace)
        view = tokens.view(np.uint8).data
        node = None if start is None else self._resolve(start, view, units)
        depth = 0 if node is None or start is None else start.depth
        if node is None:
            node = store.roots.get(namespace)
        if node is None:
            return self._extent(0, 0, [], ORIGIN, namespace)
        parts, found = store.walk(view, units, node, depth)
        end = parts[-1][0] if parts else node
        position = store.position(end, found) if found else ORIGIN
        return self._extent(depth, found, parts, position, namespace)

    def insert(self, extent: Extent, tokens: Pages, pages: Sequence[Pages], seq: int) -> Position:
        """Put what an extent lacks into the tree; return the position of the end.

        `pages`: per group int32 over [extent.start_len, upto_len). Below `found_len` a page fills
        a hole, and is ignored where the tree has one; above, all go in, 0 for window pages that
        are gone. Trailing units without any page are left out. The node that the new ones hang
        under, and the new one, count as used at `seq`.
        """
        self._require_current(extent.version)
        layout, store = self._layout, self._store
        full = layout.lane(layout.full_groups, pages) if layout.full_groups else None
        window = layout.lane(layout.window_groups, pages) if layout.window_groups else None
        start, found = extent.start_len // layout.align, extent.found_len // layout.align
        known = found - start
        end = found + len(pages[layout.base]) // layout.pages_per_unit[layout.base] - known
        if window is not None:
            self._fill_holes(extent, window[:known])
            if full is None:
                held = np.flatnonzero(window[known:].any(axis=1))
                end = found + (int(held[-1]) + 1 if len(held) else 0)
        if end == found:
            return self._use(extent.position, seq)
        self._version += 1
        new = slice(known, end - start)
        self._count(full, window, new)
        body = tokens[found * layout.align : end * layout.align].tobytes()
        node = self._append(
            extent,
            body,
            b"" if full is None else full[new].tobytes(),
            window[new].tobytes() if window is not None and window[new].any() else None,
            seq,
        )
        return store.position(node, end)

    def victims(self, need: Sequence[int], locked: Locked) -> Victims:
        """Choose `need[g]` pages of each group g from the tails of leaves, in the policy's order.

        Whole units go, with the pages of all groups, as few as will do; a unit with a locked page
        stays, and so does all before it. Never more is sought of a group than the index holds.
        """
        haul = Haul.of([min(n, held) for n, held in zip(need, self._num_pages, strict=True)])
        self._leaves.open(locked)
        take_leaf_tails(self._store, self._leaves, haul, locked)
        self._leaves.close()
        return self._victims(haul)

    def window_victims(
        self, group: int, count: int, locked: Locked, *, besides: Victims | None = None
    ) -> Victims:
        """Choose `count` pages of a window group to go alone, oldest nodes first.

        `besides` are victims that go as well, and whose pages are not chosen again.
        """
        order = self._window_holders[group]
        if besides is not None and len(besides.pages[group]):
            locked = also_locked(locked, besides.pages)
        haul = Haul.of([count if g == group else 0 for g in range(self._layout.num_groups)])
        order.open(locked)
        take_window_pages(self._store, order, group, haul, locked)
        order.close()
        if besides is not None:
            # What was parked may have been kept out by `besides` only.
            order.unpark_all()
        return self._victims(haul)

    def remove(self, *victims: Victims) -> None:
        """Evict what was chosen; all of it was chosen since the last change of the index."""
        for chosen in victims:
            self._require_current(chosen.version)
        self._version += 1
        for chosen in victims:
            for g, pages in enumerate(chosen.pages):
                self._num_pages[g] -= len(pages)
        for chosen in victims:
            for hole in chosen.holes:
                self._store.punch(hole.node, hole.group, hole.pages_idx)
                self._note(hole.node)
        touched = [hole.node for chosen in victims for hole in chosen.holes]
        for chosen in victims:
            for cut in chosen.cuts:
                if cut.keep:
                    self._store.shorten(cut.node, cut.keep)
                    self._note(cut.node)
                    touched.append(cut.node)
                else:
                    touched.append(self._drop(cut.node))
        if not self._layout.full_groups:
            for node in touched:
                self._prune(node)
        if not self._store.num_nodes:
            self._reset()

    def clear(self) -> None:
        """Forget everything, and give the memory back."""
        self._version += 1
        self._num_pages = [0] * self._layout.num_groups
        self._reset()

    def evictable(self, group: int, locked: Locked) -> int:
        """Count the pages of a group that could be evicted in all.

        Of a full group, those in units below which nothing is locked; of a window group, all that
        are not locked. Costs a pass over the whole index.
        """
        if group in self._layout.window_groups:
            held = self.pages(group)
            return int(np.count_nonzero(~locked(group, held)))
        return num_evictable(self._store, group, locked)

    def _extent(
        self, start: int, found: int, parts: list[Part], position: Position, namespace: bytes
    ) -> Extent:
        layout = self._layout
        pages = self._store.pages(parts) if parts else _no_pages(layout)
        return Extent(
            start * layout.align, found * layout.align, pages, position, namespace, self._version
        )

    def _resolve(self, start: Position, tokens: memoryview, units: int) -> int | None:
        """Return the node of a position that is good for these tokens as far as one can see."""
        store, depth = self._store, start.depth
        node = store.resolve(start)
        if node is None or depth > units:
            return None
        last = tokens[(depth - 1) * store.unit_bytes : depth * store.unit_bytes]
        skip = (depth - 1 - store.start(node)) * store.unit_bytes
        return node if store.bodies[node].startswith(last, skip) else None

    def _fill_holes(self, extent: Extent, window: Pages) -> None:
        layout, store = self._layout, self._store
        held = layout.lane(layout.window_groups, extent.pages)
        fill = (held == 0) & (window != 0)
        if not fill.any():
            return
        self._version += 1
        for g in layout.window_groups:
            filled = np.count_nonzero(fill[:, layout.lane_columns[g]])
            self._num_pages[g] += int(filled)
        first, end = extent.start_len // layout.align, extent.found_len // layout.align
        node = store.resolve(extent.position)
        while node is not None and end > first:
            start = store.start(node)
            lo = max(first, start)
            piece = slice(lo - first, end - first)
            if fill[piece].any():
                store.write_window(node, lo - start, window[piece], fill[piece])
                self._note(node)
            node, end = store.columns.parent_at[node], start

    def _use(self, position: Position, seq: int) -> Position:
        node = self._store.resolve(position)
        if node is not None:
            self._store.columns.set_used(node, seq)
            self._note(node)
        return position

    def _append(
        self, extent: Extent, tokens: bytes, full: bytes, window: bytes | None, seq: int
    ) -> int:
        store, columns = self._store, self._store.columns
        node = store.resolve(extent.position)
        depth = extent.found_len // self._layout.align
        if node is None:
            node = store.root(extent.namespace)
        elif depth < columns.end_at[node]:
            # What is left of the node may hold no window page any more.
            self._note(node)
            node = store.split(node, depth)
        if not store.is_root(node):
            columns.set_used(node, seq)
            self._note(node)
            if not columns.children_at[node] and self._may_copy(node, len(tokens)):
                store.extend(node, tokens, full, window)
                return node
        child = store.add_child(node, tokens, full, window)
        columns.set_created(child, seq)
        self._note(child)
        return child

    def _may_copy(self, leaf: int, new_bytes: int) -> bool:
        held = self._store.num_units(leaf) * self._store.unit_bytes
        return held <= max(MAX_COPY_BYTES, MAX_COPY_RATIO * new_bytes)

    def _count(self, full: Pages | None, window: Pages | None, new: slice) -> None:
        layout = self._layout
        for g, columns in enumerate(layout.lane_columns):
            lane = full if layout.windows[g] is None else window
            if lane is not None:
                self._num_pages[g] += int(np.count_nonzero(lane[new, columns]))

    def _drop(self, node: int) -> int:
        self._note(node)
        parent = self._store.drop(node)
        self._note(parent)
        return parent

    def _prune(self, node: int) -> None:
        """Drop the units of a leaf after its last page, and go on where that makes a leaf."""
        store, columns = self._store, self._store.columns
        while columns.children_at[node] == 0 and not store.is_root(node):
            units = store.num_units(node)
            held = np.flatnonzero(store.window_lane([(node, 0, units)]).any(axis=1))
            if len(held):
                keep = int(held[-1]) + 1
                if keep < units:
                    store.shorten(node, keep)
                return
            node = self._drop(node)

    def _victims(self, haul: Haul) -> Victims:
        return Victims(haul.gathered(), tuple(haul.cuts), tuple(haul.holes), self._version)

    def _note(self, node: int) -> None:
        for order in self._orders:
            order.note(node)

    def _reset(self) -> None:
        self._store.clear()
        for order in self._orders:
            order.reset()

    def _require_current(self, version: int) -> None:
        if version != self._version:
            msg = (
                "this answer of the prefix index was to be applied, but the index has changed "
                "since it was given: ask again after each insert and each removal"
            )
            raise RuntimeError(msg)


def _no_pages(layout: IndexLayout) -> tuple[Pages, ...]:
    return tuple(np.zeros(0, np.int32) for _ in layout.page_sizes)
