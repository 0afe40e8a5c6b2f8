"""The page moves on the device leave a space as the ledger's own functions do, faults included."""

import os

import numpy as np
import pytest
import torch
from paging import buffer, int32

from kvlife.kernels import PageState
from kvlife.kernels.bind_pages import bind_pages
from kvlife.kernels.change_pages import Transition, change_pages
from kvlife.kernels.rebind import rebind
from kvlife.kernels.release_pages import release_pages
from kvlife.kernels.share_pages import share_pages
from kvlife.ledger.spaces import PageSpace
from kvlife.ledger.spaces import PageState as LedgerState

NUM_PAGES = 24
# The interpreter takes some ten milliseconds a launch.
NUM_MOVES = 80 if os.environ.get("TRITON_INTERPRET") == "1" else 400


class Twins:
    """A page space of the ledger, and its columns as the device has them."""

    def __init__(self):
        self.space = PageSpace.create(NUM_PAGES, fifo=False)
        self.table = int32(np.zeros(64))
        self.state = int32(self.space.state)
        self.refs, self.pins = int32(self.space.refs), int32(self.space.pins)
        self.named = {"violations": buffer(10**6), "seq": 1}

    def bind(self, pages, at):
        self.space.take(pages, 0, 1)
        bind_pages(self.table, self.state, self.refs, at, int32(pages), **self.named)

    def share(self, pages, at):
        self.space.join(pages, 1)
        share_pages(self.table, self.state, self.refs, at, int32(pages), **self.named)

    def release(self, pages, at):
        self.space.let_go(pages, 1)
        columns = (self.table, self.state, self.refs, self.pins)
        return release_pages(*columns, at, int32(pages), **self.named)

    def rebind(self, pages, at):
        canonical = pages[::-1].copy()
        self.space.join(canonical, 1)
        self.space.let_go(pages, 1)
        columns = (self.table, self.state, self.refs, self.pins)
        return rebind(*columns, at, int32(pages), int32(canonical), **self.named)

    def publish(self, pages, _):
        self.space.publish(pages, np.ones(len(pages), np.uint64), pages, 1)
        return self._change(Transition.PUBLISH, pages)

    def evict(self, pages, _):
        self.space.evict(pages, 1)
        return self._change(Transition.EVICT, pages)

    def pin(self, pages, _):
        self.space.pin(pages, 1)
        return self._change(Transition.PIN, pages)

    def unpin(self, pages, _):
        self.space.unpin(pages, 1)
        return self._change(Transition.UNPIN, pages)

    def _change(self, transition, pages):
        columns = (self.state, self.refs, self.pins)
        return change_pages(*columns, int32(pages), transition, **self.named)

    MOVES = (bind, share, release, rebind, publish, evict, pin, unpin)

    def columns(self):
        """The three columns of each, to compare."""
        ledger = (self.space.state, self.space.refs, self.space.pins)
        return [column.tolist() for column in ledger], [
            column.tolist() for column in (self.state, self.refs, self.pins)
        ]


def test_the_states_have_the_ledgers_numbers():
    """A state is the same number on the device as in the ledger."""
    assert [(s.name, int(s)) for s in PageState] == [(s.name, int(s)) for s in LedgerState]


@pytest.mark.soak
@pytest.mark.parametrize("often", [1, 2, 9])
def test_random_moves_leave_both_alike(often, seed):
    """After each of many moves of pages in any state, named up to nine times, columns agree."""
    rng = np.random.default_rng(seed)
    twins = Twins()
    for step in range(NUM_MOVES):
        num = int(rng.integers(0, 10))
        pages = rng.choice(np.repeat(np.arange(NUM_PAGES), often), num, replace=False)
        pages = pages.astype(np.int32)
        at = torch.from_numpy(rng.permutation(64)[:num])
        before = twins.state.clone()
        move = Twins.MOVES[int(rng.integers(0, len(Twins.MOVES)))]
        freed = move(twins, pages, at)
        ledger, device = twins.columns()
        assert device == ledger, (step, move.__name__, pages)
        became = (before != 0) & (twins.state == 0)
        told = [] if freed is None else sorted(page for page in freed.tolist() if page)
        assert told == became.nonzero()[:, 0].tolist(), (step, move.__name__, pages)


@pytest.mark.soak
def test_orderly_moves_are_found_clean(seed):
    """Moves that a ledger would allow are found to be in order."""
    rng = np.random.default_rng(seed)
    twins = Twins()
    for _ in range(NUM_MOVES):
        space = twins.space
        fitting = {
            Twins.bind: space.state == PageState.FREE,
            Twins.share: (space.state == PageState.PRIVATE) | (space.state == PageState.CACHED),
            Twins.release: space.refs > 0,
            Twins.publish: space.state == PageState.PRIVATE,
            Twins.evict: (space.state == PageState.CACHED) & (space.refs + space.pins == 0),
            Twins.pin: (space.state != PageState.FREE) & (space.state != PageState.RESERVED),
            Twins.unpin: space.pins > 0,
        }
        move = list(fitting)[int(rng.integers(0, len(fitting)))]
        pages = rng.permutation(np.flatnonzero(fitting[move]))[:4].astype(np.int32)
        move(twins, pages, torch.arange(len(pages)))
    assert twins.columns()[0] == twins.columns()[1]
    assert twins.named["violations"].read() == []
