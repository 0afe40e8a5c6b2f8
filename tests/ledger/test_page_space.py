"""The page state machine against a model that keeps a dict for each page."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kvlife.ledger.spaces import PageSpace, PageState

PICK = st.randoms(use_true_random=False)
NUM = st.integers(1, 4)


def ids(pages):
    return np.array(pages, np.int32)


class PageSpaceMachine(RuleBasedStateMachine):
    """Sound transitions of design section 5, one page at a time in the model."""

    @initialize(fifo=st.booleans())
    def begin(self, fifo):
        self.space = PageSpace.create(12, fifo=fifo)
        self.pages = {page: self.fresh() for page in range(1, 12)}
        self.stamp = 0

    def fresh(self):
        return {"state": "FREE", "refs": 0, "pins": 0, "key": 0, "group": 0}

    def those(self, pick, num, *states, **wanted):
        """Up to `num` pages in one of these states with these values."""
        found = [
            page
            for page, now in self.pages.items()
            if now["state"] in states and all(now[name] == value for name, value in wanted.items())
        ]
        return pick.sample(found, min(num, len(found)))

    def next_stamp(self):
        self.stamp += 1
        return self.stamp

    def compare(self):
        states = [PageState(state).name for state in self.space.state[1:].tolist()]
        assert states == [now["state"] for now in self.pages.values()]
        for name in ("refs", "pins", "key", "group"):
            column = getattr(self.space, name)[1:].tolist()
            assert column == [now[name] for now in self.pages.values()], name
        free = {page for page, now in self.pages.items() if now["state"] == "FREE"}
        assert sorted(self.space.free.pages().tolist()) == sorted(free)
        assert PageState(self.space.state[0]) is PageState.RESERVED

    @rule(pick=PICK, num=NUM, group=st.integers(0, 2), anywhere=st.booleans())
    def take(self, pick, num, group, anywhere):
        pages = self.those(pick, num, "FREE")
        if not anywhere:
            pages = self.space.free.head(len(pages)).tolist()
        self.space.take(ids(pages), group, self.next_stamp())
        for page in pages:
            self.pages[page] |= {"state": "PRIVATE", "refs": 1, "group": group}
        assert all(self.space.last_use[pages] == self.stamp)
        self.compare()

    @rule(pick=PICK, num=NUM)
    def join(self, pick, num):
        pages = self.those(pick, num, "CACHED", "PRIVATE")
        self.space.join(ids(pages), self.next_stamp())
        for page in pages:
            self.pages[page]["refs"] += 1
        self.compare()

    @rule(pick=PICK, num=NUM)
    def let_go(self, pick, num):
        held = [page for page, now in self.pages.items() for _ in range(now["refs"])]
        pages = pick.sample(held, min(num, len(held)))
        self.space.let_go(ids(pages), self.next_stamp())
        for page in pages:
            self.pages[page]["refs"] -= 1
            self.settle(page)
        self.compare()

    def settle(self, page):
        """Without refs a PRIVATE page is FREE, or waits for its pins; without both it is FREE."""
        now = self.pages[page]
        if now["state"] == "PRIVATE" and not now["refs"]:
            now["state"] = "QUARANTINED"
        if now["state"] == "QUARANTINED" and not now["pins"]:
            self.pages[page] = self.fresh()

    @rule(pick=PICK, num=NUM)
    def publish(self, pick, num):
        pages = self.those(pick, num, "PRIVATE")
        keys = np.array([page + 1000 for page in pages], np.uint64)
        self.space.publish(ids(pages), keys, ids([0] * len(pages)), self.next_stamp())
        for page in pages:
            self.pages[page] |= {"state": "CACHED", "key": page + 1000}
        self.compare()

    @rule(pick=PICK, num=NUM)
    def evict(self, pick, num):
        pages = self.those(pick, num, "CACHED", refs=0, pins=0)
        self.space.evict(ids(pages), self.next_stamp())
        for page in pages:
            self.pages[page] = self.fresh()
        self.compare()

    @rule(pick=PICK, num=NUM)
    def pin(self, pick, num):
        pages = self.those(pick, num, "PRIVATE", "CACHED", "QUARANTINED")
        self.space.pin(ids(pages), self.next_stamp())
        for page in pages:
            self.pages[page]["pins"] += 1
        self.compare()

    @rule(pick=PICK, num=NUM)
    def unpin(self, pick, num):
        held = [page for page, now in self.pages.items() if now["pins"]]
        pages = pick.sample(held, min(num, len(held)))
        self.space.unpin(ids(pages), self.next_stamp())
        for page in pages:
            self.pages[page]["pins"] -= 1
            self.settle(page)
        self.compare()

    @precondition(lambda self: len(self.pages) < 20)
    @rule(more=NUM)
    def grow(self, more):
        size = len(self.pages) + 1 + more
        self.space.resize(size)
        for page in range(len(self.pages) + 1, size):
            self.pages[page] = self.fresh()
        self.compare()

    @rule()
    def shrink(self):
        last = len(self.pages)
        if last > 4 and self.pages[last]["state"] == "FREE":
            self.space.resize(last)
            del self.pages[last]
            self.compare()


TestPageSpace = PageSpaceMachine.TestCase
