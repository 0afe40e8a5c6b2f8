"""The nodes of the prefix index as columns: one row a node, no object a node."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Scalar = TypeVar("Scalar", bound=np.generic)

MIN_ROWS = 64
MAX_HITS = 0xFFFFFFFF
FREE = -1
"""The number of children that marks a row without a node."""


class NodeColumns:
    """Numbers of each node, in arrays for scans and as memoryviews for single reads.

    `parent`: node id; 0 for the root of a namespace. `end`: units from the root to the node's
    end, so that it starts where its parent ends. `children`: how many, FREE for an unused row.
    `stamp`: changes whenever a position in the node may have become wrong. `last_use`,
    `created`: sequence numbers; `hits`: how often a match used it; of these three, only those
    are kept that the policy reads. `window_pages[w]`: how many pages of the w-th window group
    the node holds. Row 0 stands above all roots. Rows are used again, and given back when no
    node is left.
    """

    def __init__(self, num_windows: int, kept: frozenset[str]) -> None:
        """Make the columns with no node; `kept` names those of use that are wanted."""
        self._num_windows = num_windows
        self._keeps_last_use = "last_use" in kept
        self._keeps_created = "created" in kept
        self._keeps_hits = "hits" in kept
        self._next_stamp = 1
        self.reset()

    def reset(self) -> None:
        """Drop all nodes and give the memory back; stamps go on, so old positions stay stale."""
        self.top = 1
        self.num_used = 0
        self._free = 0
        self.parent = np.zeros(MIN_ROWS, np.int32)
        self.end = np.zeros(MIN_ROWS, np.int32)
        self.children = np.full(MIN_ROWS, FREE, np.int32)
        self.stamp = np.zeros(MIN_ROWS, np.uint32)
        self.last_use = np.zeros(MIN_ROWS if self._keeps_last_use else 0, np.int64)
        self.created = np.zeros(MIN_ROWS if self._keeps_created else 0, np.int64)
        self.hits = np.zeros(MIN_ROWS if self._keeps_hits else 0, np.uint32)
        self.window_pages = [np.zeros(MIN_ROWS, np.int32) for _ in range(self._num_windows)]
        self._view()

    def take(self, parent: int, end: int) -> int:
        """Take a row for a node without children, hits and pages, and return its id."""
        if self._free:
            node = self._free
            self._free = self.parent_at[node]
        else:
            if self.top == len(self.parent):
                self._grow()
            node = self.top
            self.top += 1
        self.num_used += 1
        self.parent_at[node] = parent
        self.end_at[node] = end
        self.children_at[node] = 0
        if self._keeps_hits:
            self.hits_at[node] = 0
        self.restamp(node)
        return node

    def give_back(self, node: int) -> None:
        """Make the row free for another node."""
        self.restamp(node)
        self.children_at[node] = FREE
        for counts in self.window_pages:
            counts[node] = 0
        self.parent_at[node] = self._free
        self._free = node
        self.num_used -= 1

    def restamp(self, node: int) -> None:
        """Make every position in the node stale."""
        self._next_stamp = (self._next_stamp + 1) & 0xFFFFFFFF
        self.stamp_at[node] = self._next_stamp

    def inherit(self, node: int, source: int) -> None:
        """Give a node the age and the hits of another."""
        if self._keeps_last_use:
            self.last_use_at[node] = self.last_use_at[source]
        if self._keeps_created:
            self.created_at[node] = self.created_at[source]
        if self._keeps_hits:
            self.hits_at[node] = self.hits_at[source]

    def set_created(self, node: int, seq: int) -> None:
        """Note that a node was made, which counts as a use."""
        if self._keeps_created:
            self.created_at[node] = seq
        self.set_used(node, seq)

    def set_used(self, node: int, seq: int) -> None:
        """Note a use that is no hit."""
        if self._keeps_last_use:
            self.last_use_at[node] = seq

    def hit_path(self, node: int, seq: int) -> None:
        """Note a hit of a node and of all above it, up to the root of its namespace."""
        parent_at, last_use_at, hits_at = self.parent_at, self.last_use_at, self.hits_at
        keeps_last_use, keeps_hits = self._keeps_last_use, self._keeps_hits
        while parent := parent_at[node]:
            if keeps_last_use:
                last_use_at[node] = seq
            if keeps_hits and hits_at[node] < MAX_HITS:
                hits_at[node] += 1
            node = parent

    def _grow(self) -> None:
        # An eighth at a time: doubling would hold twice the memory that the nodes need.
        rows = self.top + max(MIN_ROWS, self.top // 8)
        self.parent = _grown(self.parent, rows)
        self.end = _grown(self.end, rows)
        self.children = _grown(self.children, rows)
        self.children[self.top :] = FREE
        self.stamp = _grown(self.stamp, rows)
        if self._keeps_last_use:
            self.last_use = _grown(self.last_use, rows)
        if self._keeps_created:
            self.created = _grown(self.created, rows)
        if self._keeps_hits:
            self.hits = _grown(self.hits, rows)
        self.window_pages = [_grown(counts, rows) for counts in self.window_pages]
        self._view()

    def _view(self) -> None:
        # Reading one element of a memoryview costs a fraction of numpy's scalar indexing.
        self.parent_at = self.parent.data
        self.end_at = self.end.data
        self.children_at = self.children.data
        self.stamp_at = self.stamp.data
        self.last_use_at = self.last_use.data
        self.created_at = self.created.data
        self.hits_at = self.hits.data


def _grown(column: npt.NDArray[Scalar], rows: int) -> npt.NDArray[Scalar]:
    wider = np.zeros(rows, column.dtype)
    wider[: len(column)] = column
    return wider
