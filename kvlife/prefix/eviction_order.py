"""The order of eviction, exactly the policy's, without a heap of all nodes."""

import heapq
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from kvlife.prefix.columns import NodeColumns
from kvlife.prefix.layout import Pages
from kvlife.prefix.policies import EvictionPolicy, Nodes
from kvlife.prefix.results import Locked

MIN_CANDIDATES = 64
CANDIDATE_SHARE = 64
"""One node in this many becomes a candidate at a scan."""

Membership = Callable[[NodeColumns, Nodes | slice], npt.NDArray[np.bool_]]
"""Says which nodes can be evicted from: leaves, or the holders of window pages."""


class EvictionOrder:
    """Yields nodes by (priority, id), in rounds.

    A scan over the columns finds the lowest candidates, up to `bound`. From then on every member
    with a priority up to `bound` is known here: as a candidate in the heap, as parked (it was
    found locked, and waits until a page that locked it no longer is), or as noted since.
    A round is `open`, any number of `pop`, `promote` and `park`, and `close`; it changes nothing
    outside, and what it popped is there again in the next.
    """

    def __init__(
        self, columns: NodeColumns, policy: EvictionPolicy, membership: Membership
    ) -> None:
        """Make an order over the members among the nodes of `columns`."""
        self._columns = columns
        self._policy = policy
        self._is_member = membership
        self.reset()

    def reset(self) -> None:
        """Forget all candidates; the next round scans."""
        self._bound: int | None = None
        self._heap: list[tuple[int, int]] = []
        self._keys: dict[int, int] = {}
        self._parked: dict[int, tuple[int, Pages]] = {}
        self._noted: list[int] = []
        self._promoted: list[tuple[int, int]] = []
        self._popped: list[tuple[int, int]] = []

    def note(self, node: int) -> None:
        """Remember that a node was made, dropped or used, or began or ceased to be a member."""
        if self._bound is None:
            return
        self._noted.append(node)
        if len(self._noted) > MIN_CANDIDATES + self._columns.num_used // 4:
            # Nobody evicts: another scan will cost less than folding all of these in.
            self.reset()

    def open(self, locked: Locked) -> None:
        """Begin a round."""
        self._fold_in_noted()
        self._unpark(locked)
        if len(self._heap) > MIN_CANDIDATES + 4 * len(self._keys):
            parked = self._parked
            self._heap = [(key, node) for node, key in self._keys.items() if node not in parked]
            heapq.heapify(self._heap)

    def pop(self) -> int | None:
        """Return the next node, or None when there is no other."""
        while True:
            heap = self._heap
            while heap and self._keys.get(heap[0][1]) != heap[0][0]:
                heapq.heappop(heap)
            if not heap and not self._has_promoted_within() and self._scan():
                continue
            if self._promoted and not (heap and heap[0] < self._promoted[0]):
                return heapq.heappop(self._promoted)[1]
            return self._pop_candidate() if heap else None

    def promote(self, node: int) -> None:
        """Take a node as a member for the rest of this round."""
        heapq.heappush(self._promoted, (self._priority(node), node))

    def park(self, node: int, group: int, pages: Pages) -> None:
        """Set a popped node aside until one of these pages, now all locked, is locked no more."""
        if self._popped and self._popped[-1][1] == node:
            self._popped.pop()
            self._parked[node] = (group, pages)

    def close(self) -> None:
        """End the round."""
        for entry in self._popped:
            heapq.heappush(self._heap, entry)
        self._popped.clear()
        self._promoted.clear()

    def unpark_all(self) -> None:
        """Let every parked node stand in the order again."""
        for node in self._parked:
            heapq.heappush(self._heap, (self._keys[node], node))
        self._parked.clear()

    def _has_promoted_within(self) -> bool:
        """Say whether the lowest promoted node is known to come before all unscanned ones."""
        if not self._promoted or self._bound is None:
            return False
        return self._promoted[0][0] <= self._bound

    def _pop_candidate(self) -> int:
        entry = heapq.heappop(self._heap)
        while self._heap and self._heap[0] == entry:
            # A node that was noted without a change of priority stands here twice.
            heapq.heappop(self._heap)
        self._popped.append(entry)
        return entry[1]

    def _priority(self, node: int) -> int:
        return int(self._policy.priority(self._columns, np.array([node]))[0])

    def _fold_in_noted(self) -> None:
        if not self._noted:
            return
        noted = sorted(set(self._noted))
        self._noted.clear()
        nodes = np.array(noted, np.int64)
        for node in noted:
            self._keys.pop(node, None)
            self._parked.pop(node, None)
        members = nodes[self._is_member(self._columns, nodes)]
        priorities = self._policy.priority(self._columns, members)
        near = priorities <= np.uint64(self._bound or 0)
        self._push(members[near], priorities[near])

    def _unpark(self, locked: Locked) -> None:
        for group in {group for group, _ in self._parked.values()}:
            nodes = [node for node, (g, _) in self._parked.items() if g == group]
            witnesses = [self._parked[node][1] for node in nodes]
            still = locked(group, np.concatenate(witnesses))
            counts = np.array([len(pages) for pages in witnesses])
            starts = np.cumsum(counts) - counts
            for i in np.flatnonzero(~np.logical_and.reduceat(still, starts)).tolist():
                node = nodes[i]
                del self._parked[node]
                heapq.heappush(self._heap, (self._keys[node], node))

    def _scan(self) -> bool:
        """Raise the bound over the next candidates; say whether there were any."""
        top = self._columns.top
        members = np.flatnonzero(self._is_member(self._columns, slice(0, top)))
        priorities = self._policy.priority(self._columns, members)
        if self._bound is not None:
            beyond = priorities > np.uint64(self._bound)
            members, priorities = members[beyond], priorities[beyond]
        if not len(members):
            return False
        wanted = max(MIN_CANDIDATES, self._columns.num_used // CANDIDATE_SHARE)
        if len(members) > wanted:
            last = np.partition(priorities, wanted - 1)[wanted - 1]
            # All that share the last priority come along, so that one number bounds them.
            near = priorities <= last
            members, priorities = members[near], priorities[near]
        self._bound = int(priorities.max())
        self._push(members, priorities)
        return True

    def _push(self, nodes: Nodes, priorities: npt.NDArray[np.uint64]) -> None:
        for key, node in zip(priorities.tolist(), nodes.tolist(), strict=True):
            self._keys[node] = key
            heapq.heappush(self._heap, (key, node))


def is_leaf(columns: NodeColumns, nodes: Nodes | slice) -> npt.NDArray[np.bool_]:
    """Say which nodes have no children: the members for whole units."""
    leaves: npt.NDArray[np.bool_] = columns.children[nodes] == 0
    return leaves


def holds_window_pages(window_idx: int) -> Membership:
    """Make a membership of the nodes with a page of that window group."""

    def is_member(columns: NodeColumns, nodes: Nodes | slice) -> npt.NDArray[np.bool_]:
        holders: npt.NDArray[np.bool_] = columns.window_pages[window_idx][nodes] > 0
        return holders

    return is_member
