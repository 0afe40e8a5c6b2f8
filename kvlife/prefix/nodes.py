"""The tree itself: nodes with their tokens and pages, split, extended, cut."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvlife.prefix.child_table import NODE_MASK, TAG_BITS, ChildTable, tag_of
from kvlife.prefix.columns import FREE, NodeColumns
from kvlife.prefix.layout import IndexLayout, Pages
from kvlife.prefix.results import Position

PAGE_BYTES = 4
LARGE_BYTES = 65536

Part = tuple[int, int, int]
"""A piece of a path: a node and the half-open range of its units that belong to the path."""


class NodeStore:
    """All nodes of the index.

    A node's tokens and its pages of full groups are one `bytes` object: tokens first, then pages
    unit by unit. It may be longer than the node, after a cut. Pages of window groups change in
    place, and lie in a `bytearray` of their own, or nowhere when all of them are gone.
    """

    def __init__(self, layout: IndexLayout, kept_columns: frozenset[str]) -> None:
        """Make a store without nodes that keeps what a policy reads."""
        self.layout = layout
        self.unit_bytes = layout.align * 4
        self.full_bytes = layout.full_stride * PAGE_BYTES
        self.window_bytes = layout.window_stride * PAGE_BYTES
        self.columns = NodeColumns(len(layout.window_groups), kept_columns)
        self.children = ChildTable()
        self.clear()

    def clear(self) -> None:
        """Drop all nodes and give the memory back."""
        self.columns.reset()
        self.children.clear()
        self.bodies: list[bytes] = [b""]
        # Without window groups the list stays empty: eight bytes a node are worth saving.
        self.windows: list[bytearray | None] = [None] if self.window_bytes else []
        self.roots: dict[bytes, int] = {}
        self.namespaces: dict[int, bytes] = {}

    @property
    def num_nodes(self) -> int:
        """How many nodes there are, roots aside."""
        return self.columns.num_used - len(self.roots)

    def start(self, node: int) -> int:
        """Return the depth in units at which the node begins."""
        return self.columns.end_at[self.columns.parent_at[node]]

    def num_units(self, node: int) -> int:
        """Return how many units the node holds."""
        return self.columns.end_at[node] - self.start(node)

    def is_root(self, node: int) -> bool:
        """Say whether the node stands for a namespace, and holds nothing."""
        return self.columns.parent_at[node] == 0

    def resolve(self, position: Position) -> int | None:
        """Return the node that a position lies in now, or None where the position is stale."""
        columns, node = self.columns, position.node
        if position.depth == 0 or node >= columns.top:
            return None
        if columns.stamp_at[node] != position.stamp or columns.children_at[node] == FREE:
            return None
        # A split keeps the id for the lower part: the position may lie above it now.
        while self.start(node) >= position.depth:
            node = columns.parent_at[node]
        return node

    def position(self, node: int, depth: int) -> Position:
        """Make a position in the node."""
        return Position(node, depth, self.columns.stamp_at[node])

    def capacity(self, node: int) -> int:
        """Return how many units the node's body has room for."""
        return len(self.bodies[node]) // (self.unit_bytes + self.full_bytes)

    def full_lane(self, parts: Sequence[Part]) -> Pages:
        """Gather the pages of the full groups over a path: [units, full_stride], read only."""
        width, unit = self.full_bytes, self.unit_bytes
        if not width or not parts:
            return _no_pages(parts, self.layout.full_stride)
        bodies = self.bodies
        if len(parts) == 1:
            node, lo, hi = parts[0]
            offset = self.capacity(node) * unit + lo * width
            flat = np.frombuffer(bodies[node], np.int32, (hi - lo) * width // 4, offset)
            return flat.reshape(-1, self.layout.full_stride)
        # Copied pieces of a large answer would double what it takes for a moment: the allocator
        # then gives memory back at every call, and every call pays for its page faults.
        is_large = sum(hi - lo for _, lo, hi in parts) * width > LARGE_BYTES
        pieces: list[bytes | memoryview] = []
        for node, lo, hi in parts:
            body = bodies[node]
            offset = len(body) // (unit + width) * unit
            source = memoryview(body) if is_large else body
            pieces.append(source[offset + lo * width : offset + hi * width])
        return np.frombuffer(b"".join(pieces), np.int32).reshape(-1, self.layout.full_stride)

    def window_lane(self, parts: Sequence[Part]) -> Pages:
        """Gather the pages of the window groups over a path: [units, window_stride], read only."""
        width = self.window_bytes
        if not width or not parts:
            return _no_pages(parts, self.layout.window_stride)
        pieces: list[bytes | bytearray] = []
        for node, lo, hi in parts:
            pages = self.windows[node]
            pieces.append(
                bytes((hi - lo) * width) if pages is None else pages[lo * width : hi * width]
            )
        return np.frombuffer(b"".join(pieces), np.int32).reshape(-1, self.layout.window_stride)

    def pages(self, parts: Sequence[Part]) -> tuple[Pages, ...]:
        """Gather the pages of each group over a path."""
        if not self.window_bytes and len(self.layout.full_groups) == 1:
            return (self.full_lane(parts).reshape(-1),)
        return self.layout.by_group(self.full_lane(parts), self.window_lane(parts))

    def nodes(self) -> npt.NDArray[np.int64]:
        """Return the ids of all nodes, roots aside, in rising order."""
        top = self.columns.top
        return np.flatnonzero((self.columns.children[:top] >= 0) & (self.columns.end[:top] > 0))

    def all_pages(self, nodes: npt.NDArray[np.int64], group: int) -> Pages:
        """Gather the pages of one group over whole nodes, one node after another; 0 for a hole."""
        columns = self.layout.lane_columns[group]
        starts = self.columns.end[self.columns.parent[nodes]]
        units = (self.columns.end[nodes] - starts).tolist()
        if self.layout.windows[group] is None:
            lane = self._full_lane_of(nodes.tolist(), units)
        else:
            parts = [(node, 0, size) for node, size in zip(nodes.tolist(), units, strict=True)]
            lane = self.window_lane(parts)
        return lane[:, columns].reshape(-1)

    def _full_lane_of(self, nodes: list[int], units: list[int]) -> Pages:
        # No tuple for each node here: this runs over the whole index.
        width, unit, bodies = self.full_bytes, self.unit_bytes, self.bodies
        bodies_of = [bodies[node] for node in nodes]
        offsets = [len(body) // (unit + width) * unit for body in bodies_of]
        pieces = [
            body[offset : offset + size * width]
            for body, offset, size in zip(bodies_of, offsets, units, strict=True)
        ]
        flat = np.frombuffer(b"".join(pieces), np.int32) if pieces else np.zeros(0, np.int32)
        return flat.reshape(-1, self.layout.full_stride)

    def walk(self, tokens: memoryview, units: int, node: int, depth: int) -> tuple[list[Part], int]:
        """Follow tokens from a depth inside (or at the end of) a node as far as the tree goes.

        `tokens` are bytes from the root on. Returns the parts of the path below the starting
        depth, and the depth reached, at most `units`.
        """
        parts: list[Part] = []
        columns, bodies, unit = self.columns, self.bodies, self.unit_bytes
        parent_at, end_at = columns.parent_at, columns.end_at
        entry_at, num_homes = self.children.entry_at, self.children.num_homes
        if depth < end_at[node] and depth < units:
            start = self.start(node)
            until = min(end_at[node], units)
            shared = self._num_shared(node, depth - start, tokens, depth, until)
            if shared:
                parts.append((node, depth - start, depth - start + shared))
                depth += shared
            if depth < until:
                return parts, depth
        while depth < units:
            at = depth * unit
            first = bytes(tokens[at : at + unit])
            tag = tag_of(node, first)
            slot = tag * num_homes >> TAG_BITS
            while entry := entry_at[slot]:
                slot += 1
                if entry >> TAG_BITS != tag:
                    continue
                child = entry & NODE_MASK
                if parent_at[child] != node:
                    continue
                until = min(end_at[child], units)
                if bodies[child].startswith(tokens[at : until * unit]):
                    parts.append((child, 0, until - depth))
                    depth = until
                    node = child
                    break
                if bodies[child].startswith(first):
                    shared = self._num_shared(child, 0, tokens, depth, until)
                    parts.append((child, 0, shared))
                    return parts, depth + shared
            else:
                break
        return parts, depth

    def _num_shared(self, node: int, skip: int, tokens: memoryview, depth: int, until: int) -> int:
        """Count the whole units that the node, from unit `skip` on, shares with the tokens."""
        piece = tokens[depth * self.unit_bytes : until * self.unit_bytes]
        if self.bodies[node].startswith(piece, skip * self.unit_bytes):
            return until - depth
        asked = np.frombuffer(piece, np.int32)
        offset = skip * self.unit_bytes
        held = np.frombuffer(self.bodies[node], np.int32, len(asked), offset)
        return int((asked != held).argmax()) // self.layout.align

    def root(self, namespace: bytes) -> int:
        """Return the root of a namespace, made where it is missing."""
        node = self.roots.get(namespace)
        if node is None:
            node = self._take(0, 0, b"", None)
            self.roots[namespace] = node
            self.namespaces[node] = namespace
        return node

    def add_child(self, parent: int, tokens: bytes, full: bytes, window: bytes | None) -> int:
        """Add a leaf under `parent`; `window` None where all its window pages are gone."""
        end = self.columns.end_at[parent] + len(tokens) // self.unit_bytes
        pages = None if window is None else bytearray(window)
        node = self._take(parent, end, tokens + full, pages)
        self.children.add(tag_of(parent, tokens[: self.unit_bytes]), node)
        self.columns.children_at[parent] += 1
        self.recount_windows(node)
        return node

    def extend(self, node: int, tokens: bytes, full: bytes, window: bytes | None) -> None:
        """Append units to a leaf; copies what the leaf holds."""
        old, units = self.bodies[node], self.num_units(node)
        offset = self.capacity(node) * self.unit_bytes
        with memoryview(old) as held:
            self.bodies[node] = b"".join(
                (
                    held[: units * self.unit_bytes],
                    tokens,
                    held[offset : offset + units * self.full_bytes],
                    full,
                )
            )
        pages = self._window(node)
        if window is not None:
            if pages is None:
                pages = self.windows[node] = bytearray(units * self.window_bytes)
            pages += window
        elif pages is not None:
            pages += bytes(len(tokens) // self.unit_bytes * self.window_bytes)
        self.columns.end_at[node] += len(tokens) // self.unit_bytes
        self.recount_windows(node)

    def split(self, node: int, depth: int) -> int:
        """Put a new node above `node` that takes its units up to `depth`; return the new one.

        The lower part keeps the id, so that its children need no change.
        """
        columns = self.columns
        parent, units = columns.parent_at[node], self.num_units(node)
        keep = depth - self.start(node)
        pages = self._window(node)
        upper_body, lower_body = self._body(node, 0, keep), self._body(node, keep, units)
        upper = self._take(
            parent, depth, upper_body, None if pages is None else pages[: keep * self.window_bytes]
        )
        columns.inherit(upper, node)
        self.children.replace(tag_of(parent, upper_body[: self.unit_bytes]), node, upper)
        self.children.add(tag_of(upper, lower_body[: self.unit_bytes]), node)
        self.bodies[node] = lower_body
        if pages is not None:
            self.windows[node] = pages[keep * self.window_bytes :]
        columns.parent_at[node] = upper
        columns.children_at[upper] = 1
        self.recount_windows(upper)
        self.recount_windows(node)
        return upper

    def shorten(self, node: int, keep: int) -> None:
        """Drop the units of a leaf from `keep` (at least 1) on."""
        pages = self._window(node)
        if pages is not None:
            del pages[keep * self.window_bytes :]
        if keep * 2 < self.capacity(node):
            # Copying for every single unit would make a long tail cost its square.
            self.bodies[node] = self._body(node, 0, keep)
        self.columns.end_at[node] = self.start(node) + keep
        self.columns.restamp(node)
        self.recount_windows(node)

    def drop(self, node: int) -> int:
        """Drop a leaf, and its root where that was the last leaf; return its parent."""
        parent = self.columns.parent_at[node]
        self.children.remove(tag_of(parent, self.bodies[node][: self.unit_bytes]), node)
        self._give_back(node)
        self.columns.children_at[parent] -= 1
        if self.is_root(parent) and not self.columns.children_at[parent]:
            del self.roots[self.namespaces.pop(parent)]
            self._give_back(parent)
        return parent

    def write_window(self, node: int, lo: int, lane: Pages, where: npt.NDArray[np.bool_]) -> None:
        """Write window pages of a node from unit `lo` on, where the mask of that shape says so."""
        pages = self._window(node)
        if pages is None:
            pages = self.windows[node] = bytearray(self.num_units(node) * self.window_bytes)
        held = np.frombuffer(pages, np.int32).reshape(-1, self.layout.window_stride)
        held[lo : lo + len(lane)][where] = lane[where]
        self.recount_windows(node)

    def punch(self, node: int, group: int, pages_idx: npt.NDArray[np.int64]) -> None:
        """Take pages of a window group out of a node, by their indices within node and group."""
        where = np.zeros((self.num_units(node), self.layout.window_stride), np.bool_)
        per_unit = self.layout.pages_per_unit[group]
        columns = where[:, self.layout.lane_columns[group]]
        columns[pages_idx // per_unit, pages_idx % per_unit] = True
        self.write_window(node, 0, np.zeros(where.shape, np.int32), where)

    def recount_windows(self, node: int) -> None:
        """Count the window pages of a node anew; drop its window lane where none is left."""
        pages = self._window(node)
        if pages is None:
            for counts in self.columns.window_pages:
                counts[node] = 0
            return
        lane = np.frombuffer(pages, np.int32).reshape(-1, self.layout.window_stride)
        total = 0
        for counts, g in zip(self.columns.window_pages, self.layout.window_groups, strict=True):
            count = int(np.count_nonzero(lane[:, self.layout.lane_columns[g]]))
            counts[node] = count
            total += count
        if not total:
            self.windows[node] = None

    def _body(self, node: int, lo: int, hi: int) -> bytes:
        body = self.bodies[node]
        offset = self.capacity(node) * self.unit_bytes
        return (
            body[lo * self.unit_bytes : hi * self.unit_bytes]
            + body[offset + lo * self.full_bytes : offset + hi * self.full_bytes]
        )

    def _take(self, parent: int, end: int, body: bytes, window: bytearray | None) -> int:
        node = self.columns.take(parent, end)
        if node == len(self.bodies):
            self.bodies.append(body)
            self.windows.extend([window] if self.window_bytes else [])
        else:
            self.bodies[node] = body
            if self.window_bytes:
                self.windows[node] = window
        return node

    def _window(self, node: int) -> bytearray | None:
        return self.windows[node] if self.window_bytes else None

    def _give_back(self, node: int) -> None:
        self.columns.give_back(node)
        self.bodies[node] = b""
        if self.window_bytes:
            self.windows[node] = None


def _no_pages(parts: Sequence[Part], stride: int) -> Pages:
    return np.zeros((sum(hi - lo for _, lo, hi in parts), stride), np.int32)


def trim(parts: list[Part], units: int) -> None:
    """Take units off the end of a path."""
    while units:
        node, lo, hi = parts[-1]
        if hi - lo <= units:
            parts.pop()
            units -= hi - lo
        else:
            parts[-1] = (node, lo, hi - units)
            units = 0
