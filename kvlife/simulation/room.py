"""How many pages can be had: free ones, and cached ones that can be evicted."""

from __future__ import annotations

from collections.abc import Sequence

from kvlife.engine import KvEngine

# What is evicted ahead of need, as a share of the pool: too little to matter for hits.
AHEAD_SHARE = 512


class Room:
    """Free and evictable pages per cache group, counted only where a lower bound does not do.

    Taking a page, free or evicted, lowers the sum by one, and so does locking one that could have
    been evicted. What others let go only raises it. So the last count less what was spent since
    is a bound, and nearly always good enough. It is kept in two parts: `_free` pages of each group
    are known to be free, and `_rest` can be had beside them.
    """

    def __init__(self, engine: KvEngine) -> None:
        self._engine = engine
        layout = engine.ledger.layout
        self._groups = [group.name for group in layout.groups]
        self._ahead = [
            layout.spaces[group.space_idx].num_pages // AHEAD_SHARE for group in layout.groups
        ]
        self._rest = [0] * len(self._groups)
        self._free = 0

    def take_free(self, num_pages: int) -> bool:
        """Spend so many pages of each group, if so many are free; quick."""
        if num_pages > self._free:
            free = min(map(self._engine.num_free, self._groups))
            self._rest = [rest + self._free - free for rest in self._rest]
            self._free = free
            if num_pages > free:
                return False
        self._free -= num_pages
        return True

    def holds(self, need: Sequence[int]) -> bool:
        """Whether `need` pages per group can be had, all at once."""
        if self._covers(need):
            return True
        engine, free = self._engine, self._free
        self._rest = [
            engine.num_free(name) + engine.num_evictable(name) - free for name in self._groups
        ]
        return self._covers(need)

    def take(self, need: Sequence[int]) -> None:
        """Spend `need` pages per group, which are there; evict where fewer are free, and then some.

        A command would evict what it lacks by itself; a few pages in each step cost more than many
        at once.
        """
        self.spend(need)
        left = []
        self._rest = [rest + self._free for rest in self._rest]
        for name, num, ahead in zip(self._groups, need, self._ahead, strict=True):
            free = self._engine.num_free(name)
            if num > free:
                free += self._engine.evict(num - free + ahead, name)
            left.append(free - num)
        self._free = max(0, min(left))
        self._rest = [rest - self._free for rest in self._rest]

    def spend(self, need: Sequence[int]) -> None:
        """So many pages per group were taken or locked, at most."""
        self._rest = [rest - num for rest, num in zip(self._rest, need, strict=True)]

    def forget(self) -> None:
        """What can be evicted is no longer known: count at the next question."""
        self._rest = [0] * len(self._groups)

    def _covers(self, need: Sequence[int]) -> bool:
        free = self._free
        return all(num <= free + rest for num, rest in zip(need, self._rest, strict=True))
