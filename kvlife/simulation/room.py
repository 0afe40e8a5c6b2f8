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
    is a bound, and nearly always good enough.
    """

    def __init__(self, engine: KvEngine) -> None:
        self._engine = engine
        layout = engine.ledger.layout
        self._groups = [group.name for group in layout.groups]
        self._ahead = [
            layout.spaces[group.space_idx].num_pages // AHEAD_SHARE for group in layout.groups
        ]
        self._bound = [0] * len(self._groups)

    def holds(self, need: Sequence[int]) -> bool:
        """Whether `need` pages per group can be had, all at once."""
        if all(num <= bound for num, bound in zip(need, self._bound, strict=True)):
            return True
        self.count()
        return all(num <= bound for num, bound in zip(need, self._bound, strict=True))

    def count(self) -> list[int]:
        """Free and evictable pages per group now."""
        engine = self._engine
        self._bound = [engine.num_free(name) + engine.num_evictable(name) for name in self._groups]
        return self._bound

    def free_ahead(self, need: Sequence[int]) -> None:
        """Evict where fewer than `need` pages per group are free, and then some for later steps.

        A command would evict what it lacks by itself; a few pages in each step cost more than many
        at once.
        """
        for name, num, ahead in zip(self._groups, need, self._ahead, strict=True):
            short = num - self._engine.num_free(name)
            if short > 0:
                self._engine.evict(short + ahead, name)

    def spend(self, need: Sequence[int]) -> None:
        """So many pages per group were taken or locked, at most."""
        self._bound = [bound - num for bound, num in zip(self._bound, need, strict=True)]

    def forget(self) -> None:
        """The bound no longer holds: count at the next question."""
        self._bound = [0] * len(self._groups)
