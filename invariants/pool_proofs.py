"""Fast proofs for the events of the pool: evictions, pins, steps and sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvlife.invariants.page_proofs import (
    CACHED,
    DRAINING,
    distinct,
    distinct_where_shared,
    lets_go_exactly,
)
from kvlife.ledger import PageState
from kvlife.ledger.rows import ROW_DRAINING, ROW_HELD

if TYPE_CHECKING:
    from kvlife.events import Evicted, Pinned, Resized, StepSettled, Unpinned
    from kvlife.invariants.page_proofs import Index
    from kvlife.ledger import Change, Ledger


def evicted(ledger: Ledger, event: Evicted, _change: Change) -> bool:
    """The pages are CACHED, each once, and nothing references or pins them."""
    layout = ledger.layout
    for group, pages in zip(layout.groups, event.pages, strict=True):
        num = len(pages)
        if not num:
            continue
        space, none = ledger.spaces[group.space_idx], bytes(4 * num)
        if space.state.take(pages).tobytes() != CACHED * num:
            return False
        if space.refs.take(pages).tobytes() != none or space.pins.take(pages).tobytes() != none:
            return False
        if not distinct(pages):
            return False
    return distinct_where_shared(ledger, event.pages)


def step_settled(ledger: Ledger, event: StepSettled, change: Change) -> bool:
    """The step is the oldest open one; just the rows drain whose last step it was."""
    if event.step != next(iter(ledger.steps), None):
        return False
    rows = ledger.steps[event.step].rows
    state = ledger.rows.state.take(rows)
    if DRAINING in state.tobytes():
        last = (state == ROW_DRAINING) & (ledger.rows.in_flight.take(rows) == 1)
        due = np.sort(rows[last])
        if due.tobytes() != np.sort(event.drained).astype(np.intp).tobytes():
            return False
    elif len(event.drained):
        return False
    return lets_go_exactly(ledger, change)


def pinned(ledger: Ledger, event: Pinned, _change: Change) -> bool:
    """The pin is new, and its pages are neither FREE nor reserved, each once."""
    if event.pin_id in ledger.pins:
        return False
    space = ledger.spaces[ledger.layout.groups[event.group].space_idx]
    states = space.state.take(event.pages).tobytes()
    if PageState.FREE in states or PageState.RESERVED in states:
        return False
    return distinct(event.pages)


def unpinned(ledger: Ledger, event: Unpinned, _change: Change) -> bool:
    """The pin is there, and these are its pages."""
    pin = ledger.pins.get(event.pin_id)
    if pin is None or pin.group != event.group:
        return False
    return pin.pages.tobytes() == event.pages.tobytes()


def resized(ledger: Ledger, event: Resized, _change: Change) -> bool:
    """The space keeps its reserved page, and only FREE pages go."""
    space = ledger.spaces[event.space]
    if event.num_pages < 1:
        return False
    gone = slice(event.num_pages, None)
    return not (space.state[gone].any() or space.refs[gone].any() or space.pins[gone].any())


def all_written(ledger: Ledger, index: Index) -> bool:
    """Whether no row outside these has pages published that it is still to write."""
    rows = ledger.rows
    early = (rows.protected > rows.committed) & (rows.in_flight == 0)
    early[index] = False
    return not (early & (rows.state == ROW_HELD)).any()
