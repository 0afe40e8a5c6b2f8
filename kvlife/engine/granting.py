"""Pages for a command: which FREE ones it takes, and what must be evicted before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.engine.core import EngineCore
from kvlife.errors import OutOfPages
from kvlife.events import Event, Evicted, PageLists
from kvlife.ledger import EMPTY, PageState
from kvlife.prefix import Victims

if TYPE_CHECKING:
    from kvlife.config import GroupLayout

I32 = npt.NDArray[np.int32]
# Of some pages of a group, by its index, which must not be evicted.
Locked = Callable[[int, I32], npt.NDArray[np.bool_]]


@attrs.define(eq=False)
class Grant:
    """Pages for a command: the evictions that must come first, and what is taken per group."""

    events: list[Event]
    victims: tuple[Victims, ...]
    pages: PageLists


class PageGranting(EngineCore):
    """Chooses pages; evicts only what a command cannot do without."""

    def _grant(self, need: Sequence[int], spared: PageLists | None = None) -> Grant:
        """Choose `need[g]` pages of each group, evicting what must go; or raise `OutOfPages`.

        `spared` are cached pages per group that are about to be locked, and so must not go.
        """
        ledger = self.ledger
        spaces = [0] * len(ledger.spaces)
        for group, num in zip(ledger.layout.groups, need, strict=True):
            spaces[group.space_idx] += num
        short = [num - s.free.num_free for num, s in zip(spaces, ledger.spaces, strict=True)]
        victims: tuple[Victims, ...] = ()
        if max(short) > 0:
            victims = self._choose_victims(short, need, self._sparing(spared))
        events: list[Event] = []
        gone: list[list[I32]] = [[] for _ in ledger.spaces]
        for chosen in victims:
            if any(pages.size for pages in chosen.pages):
                events.append(Evicted("pressure", chosen.pages))
                for group in ledger.layout.groups:
                    if chosen.pages[group.idx].size:
                        gone[group.space_idx].append(chosen.pages[group.idx])
        heads = [self._head_after(idx, gone[idx], spaces[idx]) for idx in range(len(spaces))]
        pages = []
        for group, num in zip(ledger.layout.groups, need, strict=True):
            head = heads[group.space_idx]
            pages.append(head[:num])
            heads[group.space_idx] = head[num:]
        return Grant(events, victims, tuple(pages))

    def _head_after(self, space_idx: int, gone: list[I32], num: int) -> I32:
        """The head of the free list once these pages, in this order, have gone back into it."""
        free = self.ledger.spaces[space_idx].free
        if free.fifo:
            return np.concatenate((free.head(num), *gone))[:num]
        newest_first = np.concatenate((*reversed(gone), EMPTY))[:num]
        return np.concatenate((newest_first, free.head(num - newest_first.size)))

    def _sparing(self, spared: PageLists | None) -> Locked:
        """What must not go: what is locked, and these pages."""
        if spared is None:
            return self._locked
        return lambda group, pages: self._locked(group, pages) | np.isin(pages, spared[group])

    def _choose_victims(
        self, short: list[int], need: Sequence[int], locked: Locked
    ) -> tuple[Victims, ...]:
        """Whole units from leaf tails for spaces with a full group, window pages for the others."""
        groups = self.ledger.layout.groups
        chosen: list[Victims] = []
        left = list(short)
        leading: dict[int, GroupLayout] = {}
        for group in groups:
            if group.window is None and short[group.space_idx] > 0:
                leading.setdefault(group.space_idx, group)
        if leading:
            chosen.append(self._leaf_tails(short, leading, locked))
        _subtract(left, chosen, groups)
        for group in groups:
            if group.window is not None and left[group.space_idx] > 0:
                besides = chosen[0] if chosen else None
                more = self._index.window_victims(
                    group.idx, left[group.space_idx], locked, besides=besides
                )
                chosen.append(more)
                _subtract(left, [more], groups)
        if max(left) > 0:
            self._refuse_pages(left.index(max(left)), need, locked)
        return tuple(chosen)

    def _leaf_tails(
        self, short: list[int], leading: dict[int, GroupLayout], locked: Locked
    ) -> Victims:
        """As few units as give each space what it is short of, or all that can go.

        A unit gives back the pages of all groups of a space, fewer where a window has holes: so
        the first question takes it for whole, and the next ones ask for what is left.
        """
        layout = self.ledger.layout
        per_unit = [0] * len(short)
        for group in layout.groups:
            per_unit[group.space_idx] += layout.align // group.page_size
        wanted, left = [0] * len(layout.groups), list(short)
        while True:
            for idx, lead in leading.items():
                units = -(-max(left[idx], 0) // per_unit[idx])
                wanted[lead.idx] += units * (layout.align // lead.page_size)
            victims = self._index.victims(wanted, locked)
            left = list(short)
            _subtract(left, [victims], layout.groups)
            if not any(
                left[idx] > 0 and victims.pages[lead.idx].size >= wanted[lead.idx]
                for idx, lead in leading.items()
            ):
                return victims

    def _refuse_pages(self, space_idx: int, need: Sequence[int], locked: Locked) -> None:
        groups = [g for g in self.ledger.layout.groups if g.space_idx == space_idx]
        group = max(groups, key=lambda g: need[g.idx])
        raise OutOfPages(
            group.name,
            sum(need[g.idx] for g in groups),
            self.ledger.spaces[space_idx].free.num_free,
            sum(self._index.evictable(g.idx, locked) for g in groups),
            self._held_pages(space_idx),
        )

    def _held_pages(self, space_idx: int) -> dict[str, int]:
        """Pages that cannot go, by who holds them; a shared page counts for each."""
        ledger, held = self.ledger, Counter[str]()
        for row in ledger.rows.in_use().tolist():
            session = ledger.rows.session[row]
            holder = ledger.rows.rid[row] or (f"session {session}" if session else "draining")
            for group in ledger.layout.groups:
                num = int(np.count_nonzero(ledger.pages_of(row, group.idx)))
                if num and group.space_idx == space_idx:
                    held[holder] += num
        space = ledger.spaces[space_idx]
        quarantined = int(np.count_nonzero(space.state == PageState.QUARANTINED))
        if quarantined:
            held["pinned"] = quarantined
        return held


def _subtract(left: list[int], chosen: Sequence[Victims], groups: Sequence[GroupLayout]) -> None:
    for victims in chosen:
        for group, pages in zip(groups, victims.pages, strict=True):
            left[group.space_idx] -= pages.size
