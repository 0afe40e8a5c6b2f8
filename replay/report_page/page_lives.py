"""How long pages live, and how long cached ones wait to be used again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kvlife.ledger import PageSpace, PageState
from kvlife.replay.report_page.histogram import Histogram

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

TAKEN, HIT, LET_GO = range(3)

# Touches are gathered, and looked at so many together.
_CHUNK = 1 << 16
_NEVER = np.iinfo(np.int64).min


class PageLives:
    """The touches of one page space's pages, in the order of the log.

    A life goes from the event that takes a page from the free list to the last event that touches
    it before it is taken again, or to the end for a page that is FREE there. A reuse gap goes from
    any touch of a page to the hit that follows it.
    """

    def __init__(self, num_pages: int) -> None:
        self.lifetimes = Histogram()
        self.reuse_gaps = Histogram()
        self._taken_at = np.full(num_pages, _NEVER, np.int64)
        self._touched_at = np.full(num_pages, _NEVER, np.int64)
        self._pages: list[I32] = []
        self._kinds: list[int] = []
        self._places: list[int] = []
        self._num = 0

    def touch(self, kind: int, pages: I32, place: int) -> None:
        """An event at `place` on the axis takes, hits or lets go of pages."""
        self._pages.append(pages)
        self._kinds.append(kind)
        self._places.append(place)
        self._num += pages.size
        if self._num >= _CHUNK:
            self._work_off()

    def finish(self, space: PageSpace) -> None:
        """The log ends in this state."""
        self._work_off()
        num = min(space.num_pages, self._taken_at.size)
        over = (space.state[:num] == PageState.FREE) & (self._taken_at[:num] != _NEVER)
        self.lifetimes.add(self._touched_at[:num][over] - self._taken_at[:num][over])

    def _work_off(self) -> None:
        """Sort the touches by page, so that each stands behind the one before it."""
        if not self._pages:
            return
        sizes = [pages.size for pages in self._pages]
        pages = np.concatenate(self._pages).astype(np.intp)
        order = np.argsort(pages, kind="stable")
        pages = pages[order]
        kinds = np.repeat(self._kinds, sizes)[order]
        places = np.repeat(np.array(self._places, np.int64), sizes)[order]
        self._pages, self._kinds, self._places, self._num = [], [], [], 0
        self._make_room(int(pages[-1]) + 1)
        first = np.empty(pages.size, np.bool_)
        first[0] = True
        np.not_equal(pages[1:], pages[:-1], out=first[1:])
        before = np.roll(places, 1)
        before[first] = self._touched_at[pages[first]]
        hits = (kinds == HIT) & (before != _NEVER)
        self.reuse_gaps.add(places[hits] - before[hits])
        self._end_lives(pages, kinds == TAKEN, places, before)
        last = np.roll(first, -1)
        self._touched_at[pages[last]] = places[last]

    def _end_lives(
        self, pages: npt.NDArray[np.intp], taken: npt.NDArray[np.bool_], places: I64, before: I64
    ) -> None:
        """Each taking of a page ends the life before it, where there was one."""
        pages, places, before = pages[taken], places[taken], before[taken]
        if not pages.size:
            return
        first = np.empty(pages.size, np.bool_)
        first[0] = True
        np.not_equal(pages[1:], pages[:-1], out=first[1:])
        begun = np.roll(places, 1)
        begun[first] = self._taken_at[pages[first]]
        known = begun != _NEVER
        self.lifetimes.add(before[known] - begun[known])
        last = np.roll(first, -1)
        self._taken_at[pages[last]] = places[last]

    def _make_room(self, num_pages: int) -> None:
        """A space that grew has pages that were never touched."""
        more = num_pages - self._taken_at.size
        if more > 0:
            fresh = np.full(more, _NEVER, np.int64)
            self._taken_at = np.concatenate((self._taken_at, fresh))
            self._touched_at = np.concatenate((self._touched_at, fresh))
