"""Page stamps are 32-bit distances from a base, and the base moves before they run over."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_configs import POOLS

from kvlife import KvEngine
from kvlife.events import Allocated, Marked
from kvlife.invariants import Checker
from kvlife.ledger import Ledger

# The last distance that fits, and how far the base moves.
LIMIT = (1 << 32) - 2
SHIFT = 1 << 31


def allocate(ledger, seq, length):
    rows, lens = np.array([1], np.int32), np.array([length], np.int32)
    page = ledger.spaces[0].free.head(1)
    ledger.apply(Allocated(rows, lens, (page,)), seq)
    return int(page[0])


def seqs(ledger, page):
    space = ledger.spaces[0]
    return ledger.seq_base + int(space.last_use[page]), ledger.seq_base + int(
        space.last_event[page]
    )


@pytest.mark.parametrize(("seq", "base"), [(LIMIT - 1, 0), (LIMIT, SHIFT), (3 * SHIFT, 2 * SHIFT)])
def test_the_base_moves_when_a_distance_would_not_fit(seq, base):
    """Up to 2^32 - 3 the base stays; from 2^32 - 2 on it moves by whole steps of 2^31."""
    ledger = Ledger(POOLS["one"])
    page = allocate(ledger, seq, 4)
    assert ledger.seq_base == base
    assert seqs(ledger, page) == (seq, seq)
    assert ledger.next_seq == seq + 1


def test_old_stamps_keep_their_order_across_a_move():
    """What was used before the new base counts as used at it; later stamps stay exact."""
    ledger = Ledger(POOLS["one"])
    old = allocate(ledger, 10, 4)
    kept = allocate(ledger, SHIFT + 5, 8)
    new = allocate(ledger, LIMIT + 7, 12)
    assert seqs(ledger, old) == (SHIFT, SHIFT)
    assert seqs(ledger, kept) == (SHIFT + 5, SHIFT + 5)
    assert seqs(ledger, new) == (LIMIT + 7, LIMIT + 7)


@given(gaps=st.lists(st.integers(1, 1 << 33), max_size=5))
def test_a_restored_ledger_moves_its_base_alike(gaps):
    """The base is state: a ledger restored on the way ends in the same digest."""
    ledger = Ledger(POOLS["one"])
    again = Ledger.restore(POOLS["one"], ledger.snapshot().freeze())
    seq = 0
    for num, gap in enumerate(gaps):
        seq += gap
        allocate(ledger, seq, 4 * num + 4)
        allocate(again, seq, 4 * num + 4)
        again = Ledger.restore(POOLS["one"], again.snapshot().freeze())
        assert again.digest() == ledger.digest()


def test_an_engine_runs_across_the_move():
    """An engine whose seq passes 2^32 - 2 in the middle of a run goes on, and audits clean."""
    engine = KvEngine(POOLS["one"], checker=Checker(), clock=lambda: 0)
    engine.next_seq = engine.ledger.next_seq = LIMIT - 3
    tokens = list(range(9))
    engine.admit("r", tokens)
    engine.allocate(["r"], [9])
    engine.commit(["r"])
    assert engine.finish("r", tokens) == 8
    engine.mark("idle", idle=True)
    assert engine.ledger.seq_base == SHIFT
    assert engine.audit() == []
    assert engine.match(tokens).matched_len == 8


def test_an_event_without_pages_moves_nothing_but_the_seq():
    """A note at a late seq is counted, and the seq after it follows."""
    ledger = Ledger(POOLS["one"])
    ledger.apply(Marked("note", idle=False), 1 << 40)
    assert ledger.next_seq == (1 << 40) + 1
