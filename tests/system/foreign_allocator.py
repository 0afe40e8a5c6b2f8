"""An allocator of another making, a list and a dict, that reports its facts to an observer."""

import random

import numpy as np

from kvlife.events import Admitted, Allocated, Committed, Released

PAGE_SIZE = 4


def ints(*values):
    array = np.array(values, np.int32)
    array.setflags(write=False)
    return array


class ForeignAllocator:
    """Hands out pages from a list; `facts` are events, the groups of what one call did."""

    def __init__(self, num_pages, num_rows):
        self.free = list(range(num_pages - 1, 0, -1))
        self.rows = list(range(num_rows, 0, -1))
        self.owned = {}
        self.num_admitted = 0

    def start(self, num_tokens):
        """A new request with pages for so many tokens; None where there is no room."""
        need = -(-num_tokens // PAGE_SIZE)
        if need > len(self.free) or not self.rows:
            return None
        rid, row = f"f{self.num_admitted}", self.rows.pop()
        self.num_admitted += 1
        pages = [self.free.pop() for _ in range(need)]
        self.owned[rid] = (row, pages, num_tokens)
        length = ints(num_tokens)
        return [
            Admitted(rid, row, 0, num_tokens, 0, 0, (), (ints(),)),
            Allocated(ints(row), length, (ints(*pages),)),
            Committed(ints(row), length),
        ]

    def grow(self, rid):
        """One more token; None where there is no page for it."""
        row, pages, num_tokens = self.owned[rid]
        taken = []
        if num_tokens % PAGE_SIZE == 0:
            if not self.free:
                return None
            taken = [self.free.pop()]
        self.owned[rid] = (row, pages + taken, num_tokens + 1)
        length = ints(num_tokens + 1)
        return [Allocated(ints(row), length, (ints(*taken),)), Committed(ints(row), length)]

    def stop(self, rid):
        """The request's end."""
        row, pages, _ = self.owned.pop(rid)
        self.rows.append(row)
        self.free.extend(pages)
        return [Released(rid, row, "finished", (ints(*pages),), ints())]


class LeakyAllocator(ForeignAllocator):
    """Now and then it frees a page too early, twice, or not at all."""

    def __init__(self, num_pages, num_rows, choice):
        super().__init__(num_pages, num_rows)
        self.choice = choice
        self.num_faults = 0

    def stop(self, rid):
        """As the sound one, with a fault in one of five ends."""
        row, pages, _ = self.owned[rid]
        facts = super().stop(rid)
        if len(pages) < 2 or self.choice.random() > 0.2:
            return facts
        self.num_faults += 1
        fault = self.choice.randrange(4)
        if fault == 0:
            return facts * 2
        if fault == 1:
            return [Released(rid, row, "finished", (ints(*pages[1:]),), ints())]
        if fault == 2:
            return [Released(rid, row, "finished", (ints(*pages, pages[0]),), ints())]
        foreign = next((p for _, p, _ in self.owned.values()), pages)
        return [Released(rid, row, "finished", (ints(foreign[0], *pages[1:]),), ints())]


def live(allocator, seed, num_calls):
    """So many groups of facts of random lives."""
    choice = random.Random(seed)
    for _ in range(num_calls):
        running = list(allocator.owned)
        deed = choice.random()
        facts = None
        if deed < 0.25 or not running:
            facts = allocator.start(choice.randrange(1, 20))
        elif deed < 0.85:
            facts = allocator.grow(choice.choice(running))
        if facts is None and running:
            facts = allocator.stop(choice.choice(running))
        if facts is not None:
            yield facts
