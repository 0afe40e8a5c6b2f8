"""The free list against a list: both orders, and pages taken from anywhere."""

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kvlife.ledger.freelist import FreeList


def ids(pages):
    return np.array(pages, np.int32)


class FreeListMachine(RuleBasedStateMachine):
    """`queue` is the model: pages in the order in which they would be taken."""

    @initialize(num_pages=st.integers(2, 24), fifo=st.booleans())
    def begin(self, num_pages, fifo):
        self.num_pages, self.fifo = num_pages, fifo
        self.free = FreeList.create(num_pages, np.zeros(num_pages, np.int32), fifo=fifo)
        self.queue = list(range(1, num_pages))
        self.taken = []
        self.compare()

    def compare(self):
        assert self.free.num_free == len(self.queue)
        assert self.free.head(len(self.queue)).tolist() == self.queue
        oldest_first = self.queue if self.fifo else self.queue[::-1]
        assert self.free.pages().tolist() == oldest_first
        assert self.free.head(self.num_pages + 5).tolist() == self.queue

    @rule(num=st.integers(0, 6))
    def take_the_head(self, num):
        head = self.free.head(num)
        assert head.tolist() == self.queue[:num]
        assert self.free.take_head(head)
        self.taken += self.queue[:num]
        del self.queue[:num]
        self.compare()

    @precondition(lambda self: len(self.queue) > 1)
    @rule(shift=st.integers(1, 5))
    def refuse_what_is_not_the_head(self, shift):
        wrong = self.queue[shift % len(self.queue) or 1 :]
        assert not self.free.take_head(ids(wrong))
        assert not self.free.take_head(ids([*self.queue, 0]))
        self.compare()

    @precondition(lambda self: self.queue)
    @rule(pick=st.randoms(use_true_random=False), num=st.integers(1, 6))
    def remove_anywhere(self, pick, num):
        """The pages that would be taken first or last move into the holes; none else moves."""
        gone = pick.sample(self.queue, min(num, len(self.queue)))
        order = self.queue if self.fifo else self.queue[::-1]
        left = len(order) - len(gone)
        movers = [page for page in order[left:] if page not in gone]
        kept = [page if page not in gone else movers.pop(0) for page in order[:left]]
        self.free.remove(ids(gone))
        self.taken += gone
        self.queue = kept if self.fifo else kept[::-1]
        self.compare()

    @precondition(lambda self: self.taken)
    @rule(pick=st.randoms(use_true_random=False), num=st.integers(1, 6))
    def put_back(self, pick, num):
        pages = pick.sample(self.taken, min(num, len(self.taken)))
        assert self.free.put_back(ids(pages))
        self.taken = [page for page in self.taken if page not in pages]
        self.queue = self.queue + pages if self.fifo else pages + self.queue
        self.compare()

    @precondition(lambda self: self.taken)
    @rule()
    def refuse_a_page_twice(self):
        assert not self.free.put_back(ids([self.taken[0], self.taken[0]]))
        self.compare()

    @rule(more=st.integers(0, 4))
    def grow(self, more):
        position = np.zeros(self.num_pages + more, np.int32)
        self.free.resize(self.num_pages + more, position)
        self.taken += range(self.num_pages, self.num_pages + more)
        self.num_pages += more
        self.compare()


TestFreeList = FreeListMachine.TestCase


@pytest.mark.parametrize(("fifo", "head"), [(False, [3, 1, 4]), (True, [4, 5, 3])])
def test_what_was_freed_last_or_first_is_taken_next(fifo, head):
    """Pages 1, 2 and 3 of five are taken, and 3 and 1 come back, 3 before 1."""
    free = FreeList.create(6, np.zeros(6, np.int32), fifo=fifo)
    assert free.take_head(ids([1, 2, 3]))
    assert free.put_back(ids([3, 1]))
    assert free.head(3).tolist() == head
