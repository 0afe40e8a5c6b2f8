"""Eviction policies: which leaf goes first."""

from collections.abc import Callable
from typing import Protocol

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.errors import ConfigError
from kvlife.prefix.columns import NodeColumns

Nodes = npt.NDArray[np.int64]
Priorities = npt.NDArray[np.uint64]

SEQ_BITS = 48
MAX_HITS = (1 << 64 - SEQ_BITS) - 1
"""LFU counts no further: hits and last use, a sequence number below 2**48, share 64 bits."""


class EvictionPolicy(Protocol):
    """Ranks nodes for eviction; nothing else decides the order but node ids, on a tie.

    `reads` names the columns of use that it needs: `last_use`, `created`, `hits`. The index
    keeps no others.
    """

    @property
    def reads(self) -> frozenset[str]:
        """The columns of use that the priority depends on."""
        ...

    def priority(self, columns: NodeColumns, nodes: Nodes) -> Priorities:
        """Return a priority for each node, by array operations; the lowest is evicted first."""
        ...


@attrs.frozen(slots=True)
class LeastRecentlyUsed:
    """The leaf whose last use is longest ago."""

    reads: frozenset[str] = attrs.field(init=False, default=frozenset({"last_use"}))

    def priority(self, columns: NodeColumns, nodes: Nodes) -> Priorities:
        """Return the sequence number of the last use."""
        return columns.last_use[nodes].astype(np.uint64)


@attrs.frozen(slots=True)
class LeastFrequentlyUsed:
    """The leaf with the fewest hits; among equals the one not used for longest."""

    reads: frozenset[str] = attrs.field(init=False, default=frozenset({"hits", "last_use"}))

    def priority(self, columns: NodeColumns, nodes: Nodes) -> Priorities:
        """Return hits above the last use."""
        hits = np.minimum(columns.hits[nodes], MAX_HITS).astype(np.uint64)
        return hits << np.uint64(SEQ_BITS) | columns.last_use[nodes].astype(np.uint64)


@attrs.frozen(slots=True)
class FirstInFirstOut:
    """The leaf that was created first, whatever its use."""

    reads: frozenset[str] = attrs.field(init=False, default=frozenset({"created"}))

    def priority(self, columns: NodeColumns, nodes: Nodes) -> Priorities:
        """Return the sequence number of the creation."""
        return columns.created[nodes].astype(np.uint64)


@attrs.frozen(slots=True)
class SegmentedLru:
    """Two segments: leaves with fewer than `threshold` hits go first, each segment by LRU."""

    threshold: int = 2
    reads: frozenset[str] = attrs.field(init=False, default=frozenset({"hits", "last_use"}))

    def priority(self, columns: NodeColumns, nodes: Nodes) -> Priorities:
        """Return the segment above the last use."""
        protected = (columns.hits[nodes] >= self.threshold).astype(np.uint64)
        return protected << np.uint64(63) | columns.last_use[nodes].astype(np.uint64)


POLICIES: dict[str, Callable[[], EvictionPolicy]] = {
    "lru": LeastRecentlyUsed,
    "lfu": LeastFrequentlyUsed,
    "fifo": FirstInFirstOut,
    "slru": SegmentedLru,
}
"""The policies that a configuration may name."""


def policy_named(name: str) -> EvictionPolicy:
    """Return the policy of that name; ConfigError lists the known ones."""
    make = POLICIES.get(name)
    if make is None:
        known = ", ".join(sorted(POLICIES))
        raise ConfigError(f"the eviction policy {name!r} does not exist: use one of {known}")
    return make()
