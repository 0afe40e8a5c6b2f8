"""The free list of a page space: an array, with each FREE page's position kept beside it."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]


@attrs.define(eq=False)
class FreeList:
    """FREE pages in an array `slots` of as many entries as the space has pages.

    Last freed first: entries [0, num_free), taken from the end. First freed first: a ring from
    `start` on, taken from there. `position[page]` is where a FREE page stands.
    """

    slots: I32
    position: I32
    fifo: bool
    num_free: int = 0
    start: int = 0
    # The head as it was last shown; whoever shows that very array need not have it compared.
    _shown: I32 | None = None

    @classmethod
    def create(cls, num_pages: int, position: I32, *, fifo: bool) -> FreeList:
        """All pages but page 0; page 1 is at the head."""
        free = cls(np.zeros(num_pages, np.int32), position, fifo)
        free.put_back(np.arange(1, num_pages, dtype=np.int32))
        return free

    def head(self, num: int) -> I32:
        """The pages that would be taken next, fewer where there are not as many."""
        num = min(num, self.num_free)
        if not self.fifo:
            head = self.slots[self.num_free - num : self.num_free][::-1].copy()
        elif self.start + num <= len(self.slots):
            head = self.slots[self.start : self.start + num].copy()
        else:
            head = self.slots.take(np.arange(self.start, self.start + num), mode="wrap")
        head.setflags(write=False)
        self._shown = head
        return head

    def is_head(self, pages: I32) -> bool:
        """Whether these pages are exactly those that would be taken next."""
        if pages is self._shown:
            return True
        num = pages.size
        return num <= self.num_free and self.head(num).tobytes() == pages.tobytes()

    def take_head(self, pages: I32) -> bool:
        """Take these pages if they are exactly the head; else change nothing and say False."""
        if not self.is_head(pages):
            return False
        self._shown = None
        num = pages.size
        self.num_free -= num
        if self.fifo:
            self.start = (self.start + num) % len(self.slots)
        return True

    def remove(self, pages: I32) -> None:
        """Take any FREE pages, each named once; the last entries move into the holes."""
        num = pages.size
        if num == 0:
            return
        self._shown = None
        size = len(self.slots)
        logical = (self.position[pages] - self.start) % size
        left = self.num_free - num
        in_tail = np.zeros(num, bool)
        in_tail[logical[logical >= left] - left] = True
        tail = (self.start + left + np.arange(num)) % size
        movers = self.slots[tail[~in_tail]]
        holes = (self.start + np.sort(logical[logical < left])) % size
        self.slots[holes] = movers
        self.position[movers] = holes
        self.num_free = left

    def put_back(self, pages: I32) -> bool:
        """Append pages, the first to be taken first; False, with nothing done, if one is twice."""
        num = pages.size
        self._shown = None
        if self.num_free + num > len(self.slots):
            return False
        ordered = pages if self.fifo else pages[::-1]
        first = self.start + self.num_free
        if first + num <= len(self.slots):
            self.slots[first : first + num] = ordered
            spots = np.arange(first, first + num, dtype=np.int32)
        else:
            spots = (np.arange(first, first + num) % len(self.slots)).astype(np.int32)
            self.slots[spots] = ordered
        where = ordered.astype(np.intp)
        self.position[where] = spots
        if self.position.take(where).tobytes() != spots.tobytes():
            return False
        self.num_free += num
        return True

    def pages(self) -> I32:
        """All FREE pages in storage order, from the one freed first."""
        return self.pages_into(np.empty(self.num_free, np.int32))

    def pages_into(self, buffer: I32) -> I32:
        """As `pages`, in the front of a buffer that has room for them."""
        found = buffer[: self.num_free]
        straight = min(self.num_free, len(self.slots) - self.start)
        found[:straight] = self.slots[self.start : self.start + straight]
        found[straight:] = self.slots[: self.num_free - straight]
        return found

    def resize(self, num_pages: int, position: I32) -> None:
        """Another number of pages; those that stay keep their order."""
        kept = self.pages()
        self._shown = None
        self.slots = np.zeros(num_pages, np.int32)
        self.slots[: kept.size] = kept
        self.position = position
        self.position[kept] = np.arange(kept.size, dtype=np.int32)
        self.start = 0
        self.num_free = kept.size
