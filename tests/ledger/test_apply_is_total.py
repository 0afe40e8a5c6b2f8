"""`apply` takes whatever is well-formed: a fold goes on after a broken invariant."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_configs import POOLS
from senseless_events import Nonsense

from kvlife.events import check_structure
from kvlife.ledger import Ledger, PageState, RowState
from kvlife.ledger.rows import RowColumns

NUM_EVENTS = 60


def _check_bounds(ledger):
    """All that later events will use as an index is in range, and the free list is whole."""
    layout = ledger.layout
    for group in layout.groups:
        table = ledger.tables[group.idx]
        assert table.size == layout.num_rows * group.table_width
        assert table.min() >= 0
        assert table.max() < layout.spaces[group.space_idx].num_pages
    for space_layout, space in zip(layout.spaces, ledger.spaces, strict=True):
        assert space.num_pages == space_layout.num_pages
        assert space.state[0] == PageState.RESERVED
        free = space.free.pages()
        assert sorted(free.tolist()) == np.flatnonzero(space.state == PageState.FREE).tolist()
        assert space.refs.min() >= 0
        assert space.pins.min() >= 0
        assert not space.refs[free].any()
    assert ledger.rows.state[0] == RowState.RESERVED
    for row in ledger.requests.values():
        assert 0 <= row < layout.num_rows


@pytest.mark.parametrize("name", POOLS)
@settings(max_examples=60)
@given(seed=st.integers(0, 1 << 40))
def test_senseless_events_never_raise_and_stay_in_bounds(name, seed):
    """Well-formed events without sense fold without an error, and nothing leaves its bounds."""
    ledger = Ledger(POOLS[name])
    nonsense = Nonsense(seed, ledger)
    for seq in range(NUM_EVENTS):
        event = nonsense.event()
        check_structure(event, ledger.layout)
        ledger.apply(event, seq, seq)
        _check_bounds(ledger)


@pytest.mark.parametrize("name", POOLS)
@settings(max_examples=30)
@given(seed=st.integers(0, 1 << 40))
def test_a_senseless_state_can_be_restored(name, seed):
    """A snapshot of any state, sound or not, restores to the same digest."""
    ledger = Ledger(POOLS[name])
    nonsense = Nonsense(seed, ledger)
    for seq in range(NUM_EVENTS):
        ledger.apply(nonsense.event(), seq, seq)
    again = Ledger.restore(POOLS[name], ledger.snapshot().freeze())
    assert again.digest() == ledger.digest()


def test_a_generation_begins_anew_behind_its_last():
    """A snapshot may name the last of 2^32 generations; the next one is 0, without a warning."""
    rows = RowColumns.create(4, 0)
    rows.generation[2] = 2**32 - 1
    rows.renew(2)
    assert rows.generation.tolist() == [0, 0, 0, 0]
