"""A page space: the columns of its pages, their state machine, and the free list."""

from __future__ import annotations

import enum

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.ledger.freelist import FreeList

I32 = npt.NDArray[np.int32]
U64 = npt.NDArray[np.uint64]


class PageState(enum.IntEnum):
    """The state of a page; RESERVED is page 0, which is never handed out."""

    FREE = 0
    PRIVATE = 1
    CACHED = 2
    QUARANTINED = 3
    RESERVED = 4


# 0-d arrays: what numpy need not convert at each assignment.
FREE, PRIVATE, CACHED, QUARANTINED = (np.array(state, np.uint8) for state in range(4))
ZERO, ONE, MINUS_ONE = (np.array(number, np.int32) for number in (0, 1, -1))
NO_KEY = np.array(0, np.uint64)
CACHED_BYTE = bytes((PageState.CACHED,))


@attrs.define(eq=False)
class PageSpace:
    """Per page: state, group, refs, pins, key, parent page, last use, last event.

    `link` is the parent page of a page that is not FREE, and the position in the free list of one
    that is. `last_use` and `last_event` are seqs, stored as distances from the ledger's base.
    Every method is total: what a faulty event asks for is done as far as it makes sense.
    """

    state: npt.NDArray[np.uint8]
    group: npt.NDArray[np.uint8]
    refs: I32
    pins: I32
    key: U64
    link: I32
    last_use: npt.NDArray[np.uint32]
    last_event: npt.NDArray[np.uint32]
    free: FreeList

    @classmethod
    def create(cls, num_pages: int, *, fifo: bool) -> PageSpace:
        """All pages FREE, page 0 RESERVED; page 1 is taken first."""
        state = np.zeros(num_pages, np.uint8)
        state[0] = PageState.RESERVED
        link = np.zeros(num_pages, np.int32)
        return cls(
            state=state,
            group=np.zeros(num_pages, np.uint8),
            refs=np.zeros(num_pages, np.int32),
            pins=np.zeros(num_pages, np.int32),
            key=np.zeros(num_pages, np.uint64),
            link=link,
            last_use=np.zeros(num_pages, np.uint32),
            last_event=np.zeros(num_pages, np.uint32),
            free=FreeList.create(num_pages, link, fifo=fifo),
        )

    @property
    def num_pages(self) -> int:
        """Pages of the space, the reserved one included."""
        return len(self.state)

    def take(self, pages: I32, group: int, stamp: int) -> None:
        """FREE pages become PRIVATE with one ref; a page that has an owner only gets the ref."""
        if not pages.size:
            return
        spots = pages.astype(np.intp)
        if self.free.take_head(pages):
            self.state[spots] = PRIVATE
            self.refs[spots] = ONE
            self.link[spots] = ZERO
            if group:
                self.group[spots] = group
        else:
            self._take_anywhere(pages, group)
        self.last_use[spots] = stamp
        self.last_event[spots] = stamp

    def _take_anywhere(self, pages: I32, group: int) -> None:
        """Off the fast path: any FREE page may be taken, and a faulty event may name others."""
        were_free = np.unique(pages[self.state[pages] == FREE])
        self.free.remove(were_free)
        self.state[were_free] = PRIVATE
        self.group[were_free] = group
        self.link[were_free] = 0
        owned = (self.state[pages] == PRIVATE) | (self.state[pages] == CACHED)
        np.add.at(self.refs, pages[owned], 1)

    def join(self, pages: I32, stamp: int) -> None:
        """One more ref on each page; one that nobody has, FREE or QUARANTINED, is left alone."""
        spots = pages.astype(np.intp)
        states = self.state.take(spots)
        if states.tobytes() != CACHED_BYTE * spots.size:
            spots = spots[(states == PRIVATE) | (states == CACHED)]
        self._add(self.refs, spots, ONE)
        self.last_use[spots] = stamp
        self.last_event[spots] = stamp

    def let_go(self, pages: I32, stamp: int) -> None:
        """One ref less on each page; at 0 a PRIVATE one becomes FREE, or QUARANTINED if pinned."""
        if not pages.size:
            return
        spots = pages.astype(np.intp)
        left = self._add(self.refs, spots, MINUS_ONE)
        if left.min() < 0:
            np.maximum.at(self.refs, spots, 0)
        gone = (left <= ZERO) & (self.state.take(spots) == PRIVATE)
        self.last_event[spots] = stamp
        if 1 in gone.tobytes():
            leaving = pages[gone]
            pinned = self.pins.take(leaving) > ZERO
            if 1 in pinned.tobytes():
                self.state[leaving[pinned]] = QUARANTINED
                leaving = leaving[~pinned]
            self.set_free(leaving)

    def _add(self, column: I32, spots: npt.NDArray[np.intp], one: I32) -> I32:
        """Add to the entries, a page that stands twice counted twice; returns the new values."""
        if spots.size > 1 and not self._each_once(spots):
            np.add.at(column, spots, one)
            return column.take(spots)
        values = column.take(spots) + one
        column[spots] = values
        return values

    def _each_once(self, spots: npt.NDArray[np.intp]) -> bool:
        """Whether no page is named twice; scribbles in `last_event`, which the caller then sets."""
        order = np.arange(spots.size, dtype=np.uint32)
        self.last_event[spots] = order
        return self.last_event.take(spots).tobytes() == order.tobytes()

    def set_free(self, pages: I32) -> None:
        """Make pages FREE and put them into the free list, each once."""
        if not self.free.put_back(pages):
            # A faulty event named a page twice: keep the first of each, in order.
            _, first = np.unique(pages, return_index=True)
            pages = pages[np.sort(first)]
            self.free.put_back(pages)
        spots = pages.astype(np.intp)
        self.state[spots] = FREE
        self.key[spots] = NO_KEY
        self.refs[spots] = ZERO
        self.group[spots] = FREE

    def publish(self, pages: I32, keys: U64, parents: I32, stamp: int) -> None:
        """PRIVATE pages become CACHED under their keys; others are left alone."""
        spots = pages.astype(np.intp)
        new = self.state.take(spots) == PRIVATE
        if 0 in new.tobytes():
            spots, keys, parents = spots[new], keys[new], parents[new]
        self.state[spots] = CACHED
        self.key[spots] = keys
        self.link[spots] = parents
        self.last_event[spots] = stamp

    def evict(self, pages: I32, stamp: int) -> None:
        """CACHED pages become FREE, whatever still refers to them; others are left alone."""
        cached = pages[self.state.take(pages) == CACHED]
        if cached.size:
            self.last_event[cached] = stamp
            self.set_free(cached)

    def pin(self, pages: I32, stamp: int) -> None:
        """One more pin on each page."""
        spots = pages.astype(np.intp)
        self._add(self.pins, spots, ONE)
        self.last_event[spots] = stamp

    def unpin(self, pages: I32, stamp: int) -> None:
        """One pin less on each page; a QUARANTINED one whose last it was becomes FREE."""
        if not pages.size:
            return
        spots = pages.astype(np.intp)
        left = self._add(self.pins, spots, MINUS_ONE)
        if left.min() < 0:
            np.maximum.at(self.pins, spots, 0)
        gone = pages[(left <= ZERO) & (self.state.take(spots) == QUARANTINED)]
        self.last_event[spots] = stamp
        if gone.size:
            self.set_free(gone)

    def resize(self, num_pages: int) -> None:
        """Grow with FREE pages, or drop the pages from `num_pages` on, which are FREE."""
        old = self.num_pages
        if num_pages < old:
            doomed = np.flatnonzero(self.state[num_pages:] == FREE).astype(np.int32) + num_pages
            self.free.remove(doomed)
        for name in ("state", "group", "refs", "pins", "key", "last_use", "last_event", "link"):
            column = getattr(self, name)
            fresh = np.zeros(num_pages, column.dtype)
            fresh[: min(old, num_pages)] = column[:num_pages]
            setattr(self, name, fresh)
        self.free.resize(num_pages, self.link)
        if num_pages > old:
            self.free.put_back(np.arange(old, num_pages, dtype=np.int32))
