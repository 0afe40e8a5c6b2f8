"""The state that a program is folded into, and the pages that its lives wish for there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from kvlife.config import GroupLayout
from kvlife.events import PageLists
from kvlife.ledger import EMPTY, Ledger, PageState, holding
from kvlife.ledger.spans import At, indices
from kvlife.replay.shrinking.lives import Life
from kvlife.replay.shrinking.naming import host_pages_named, pages_named
from kvlife.replay.shrinking.program import Program
from kvlife.replay.shrinking.reading import int32s

I32 = npt.NDArray[np.int32]


class State:
    """A ledger, and which life has each row.

    A life gets the pages it had in the run where they are FREE, and others where they are not.
    Pages that the faulty event found FREE are left for it, and none that it names is given to
    another life.
    """

    def __init__(self, program: Program) -> None:
        """All rows and pages FREE."""
        self.ledger = Ledger(program.config)
        self.lives: Mapping[int, Life] = program.lives
        self.life_of: dict[int, int] = {}
        self._named: list[set[int]] = [set() for _ in self.ledger.spaces]
        self._left_free = program.left_free
        self._host_left_free = program.host_left_free
        self._host_named = set(host_pages_named(program.last.event).tolist())
        self._host_keepers = program.host_keepers
        for group, pages in pages_named(program.last.event):
            self._named[self.ledger.layout.groups[group].space_idx].update(pages.tolist())

    def has(self, row: int, life: int) -> bool:
        """Whether the row is in this life."""
        return self.life_of.get(row) == life

    def wished(self, row: int, at: tuple[At, ...]) -> PageLists | None:
        """FREE pages for these entries of a row; None where there are not enough."""
        taken = [set(pages) for pages in self._left_free]
        lists = []
        for group, spots in zip(self.ledger.layout.groups, at, strict=True):
            entries = (indices(spots) - row * group.table_width).tolist()
            pages = self._free_pages(group, self.lives[self.life_of[row]], entries, taken)
            if pages is None:
                return None
            lists.append(pages)
        return tuple(lists)

    def _free_pages(
        self, group: GroupLayout, life: Life, entries: Sequence[int], taken: list[set[int]]
    ) -> I32 | None:
        if not entries:
            return EMPTY
        space, ours = self.ledger.spaces[group.space_idx], taken[group.space_idx]
        had = life.pages[group.idx]
        pages = [had.get(entry, 0) for entry in entries]
        for i, page in enumerate(pages):
            free = 0 < page < space.num_pages and space.state[page] == PageState.FREE
            pages[i] = page if free and page not in ours else 0
            ours.add(pages[i])
        if 0 in pages:
            # From the far end, where no life's own page is likely to lie.
            avoided = ours | self._named[group.space_idx]
            others = iter(np.flatnonzero(space.state == PageState.FREE)[::-1].tolist())
            for i, page in enumerate(pages):
                if not page:
                    found = next((other for other in others if other not in avoided), 0)
                    if not found:
                        return None
                    pages[i] = found
                    ours.add(found)
        return int32s(pages)

    def host_pages(self, rid: str, had: I32, num: int) -> I32 | None:
        """So many FREE host pages for a request; None where there are not enough.

        Those that were had come first, and of these the ones that the faulty event names. What it
        finds kept by a request goes to that one alone: others that had it before took others.
        """
        host = self.ledger.host
        if host is None:
            return None
        free = set(np.flatnonzero(host.state == PageState.FREE).tolist()) - self._host_left_free
        free -= {page for page, keeper in self._host_keepers.items() if keeper != rid}
        chosen = [page for page in had.tolist() if page in free]
        chosen = sorted(chosen, key=lambda page: page not in self._host_named)[:num]
        chosen += sorted(free - set(chosen), reverse=True)[: num - len(chosen)]
        return int32s(chosen) if len(chosen) == num else None

    def backs(self, rid: str, row: int, at: tuple[At, ...]) -> bool:
        """Whether a waiting request's backup has what goes to these entries of a row."""
        ledger = self.ledger
        if ledger.host is None:
            return True
        for group, spots in zip(ledger.layout.groups, at, strict=True):
            table_idx = (indices(spots) - row * group.table_width).astype(np.int32)
            groups = np.full(table_idx.size, group.idx, np.uint8)
            if not holding(ledger, rid, groups, table_idx).all():
                return False
        return True

    def held(self, at: tuple[At, ...]) -> PageLists:
        """The pages that stand at these entries, zeros left out."""
        return tuple(
            frozen(pages.compress(pages != 0)) if pages.size else EMPTY
            for pages in self.ledger.pages_at(at)
        )


def frozen(array: I32) -> I32:
    """The array, read-only."""
    array.setflags(write=False)
    return array
