"""Fast proofs: a few array operations that show, for most events, that every guard holds.

A proof answers True only where no guard of the catalogue could find a fault; where it is not sure
it answers False, and the guards are asked. So a proof that is too strict costs time, and one that
is too lax is a bug, which a property test hunts.

Comparing bytes is how it is fast: `array.tobytes() == b"\\1" * n` is a quarter of the cost of
`(array == 1).all()`, and `1 in (left > right).tobytes()` a quarter of `(left > right).any()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kvlife import transitions
from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Evicted,
    Marked,
    Pinned,
    Protected,
    Released,
    Resized,
    Resumed,
    Retracted,
    RolledBack,
    SessionClosed,
    SessionRestored,
    SessionSaved,
    StepDispatched,
    StepSettled,
    Unpinned,
    Violated,
    WindowEvicted,
)
from kvlife.invariants import pool_proofs, row_proofs
from kvlife.invariants.page_proofs import (
    PRIVATE,
    HeldRows,
    clear_of_pins,
    lets_go_exactly,
    takes_free,
)
from kvlife.ledger.spans import spans_of

if TYPE_CHECKING:
    from kvlife.config import GroupLayout
    from kvlife.invariants.page_proofs import I32, Index
    from kvlife.ledger import Change, Ledger

Proof = Callable[["Ledger", Any, "Change"], bool]  # Any: the event class that the proof is for


class Proofs:
    """The proofs of one checker, with what they remember from event to event."""

    def __init__(self) -> None:
        """Nothing is remembered yet."""
        self._held = HeldRows()
        self._running = HeldRows()
        self._capacity = np.array(0, np.int32)
        self._one = np.array(1, np.int32)
        self._before: dict[type, Proof] = {
            Admitted: row_proofs.admitted,
            Resumed: row_proofs.resumed,
            Allocated: self._allocated,
            Committed: self._committed,
            Protected: row_proofs.protected,
            RolledBack: self._rolled_back,
            WindowEvicted: self._window_evicted,
            Released: row_proofs.released,
            Retracted: row_proofs.retracted,
            Evicted: pool_proofs.evicted,
            SessionSaved: row_proofs.saved,
            SessionRestored: row_proofs.restored,
            SessionClosed: row_proofs.closed,
            StepDispatched: self._step_dispatched,
            StepSettled: pool_proofs.step_settled,
            Pinned: pool_proofs.pinned,
            Unpinned: pool_proofs.unpinned,
            Resized: pool_proofs.resized,
            Marked: lambda _ledger, event, _change: not event.idle,
            Violated: lambda _ledger, _event, _change: True,
        }
        self._after: dict[type, Proof] = {
            Allocated: self._writable,
            RolledBack: self._writable,
        }

    def before(self, event_type: type) -> Proof:
        """The proof that stands for all guards of a class of events."""
        return self._before[event_type]

    def after(self, event_type: type) -> Proof:
        """The proof that stands for all post-checks of a class of events."""
        return self._after.get(event_type, lambda _ledger, _event, _change: True)

    def _allocated(self, ledger: Ledger, event: Allocated, change: Change) -> bool:
        index, new = change.index, event.allocated_len
        if index is None or not self._held.all_held(ledger, event.rows, index):
            return False
        if self._capacity != ledger.layout.capacity:
            self._capacity = np.array(ledger.layout.capacity, np.int32)
        if 1 in (new > self._capacity).tobytes() or 1 in (new < change.old_allocated).tobytes():
            return False
        if 1 in (new < ledger.rows.committed.take(index)).tobytes():
            return False
        if event.evicted_len is not None and not _cursors_stay(ledger, index, event.evicted_len):
            return False
        return change.taken_at is not None and takes_free(ledger, event.pages, change.taken_at)

    def _committed(self, ledger: Ledger, event: Committed, change: Change) -> bool:
        index, new, rows = change.index, event.committed_len, ledger.rows
        if index is None or not self._held.all_held(ledger, event.rows, index):
            return False
        allocated = rows.allocated.take(index)
        if new.tobytes() != allocated.tobytes() and 1 in (new > allocated).tobytes():
            return False
        if 1 in (new > rows.settled.take(index)).tobytes():
            return False
        old = rows.committed.take(index)
        if 1 in (new < old).tobytes():
            return False
        return not ledger.pins or clear_of_pins(ledger, index, old, new)

    def _rolled_back(self, ledger: Ledger, event: RolledBack, change: Change) -> bool:
        index, rows = change.index, ledger.rows
        end, new = event.allocated_len, event.committed_len
        if index is None or not self._held.all_held(ledger, event.rows, index):
            return False
        if event.copies.size or 1 in (end > change.old_allocated).tobytes():
            return False
        if 1 in (new > end).tobytes() or 1 in (new > rows.committed.take(index)).tobytes():
            return False
        protected = rows.protected.take(index)
        top = end if ledger.layout.scheduled else new
        if 1 in (protected > top).tobytes() or (len(new) and new.min() < 0):
            return False
        for group in ledger.layout.window_groups:
            cursor = rows.cursors[_window_idx(group)].take(index)
            bound = transitions.cursor_bound(new, group.window or 0, group.page_size)
            if cursor.any() and 1 in (cursor > bound).tobytes():
                return False
        return lets_go_exactly(ledger, change)

    def _window_evicted(self, ledger: Ledger, event: WindowEvicted, change: Change) -> bool:
        group, index = ledger.layout.groups[event.group], change.index
        if group.window is None or index is None:
            return False
        if not self._held.all_held(ledger, event.rows, index):
            return False
        new = event.evicted_len
        old = ledger.rows.cursors[_window_idx(group)].take(index)
        if 1 in (new < old).tobytes() or (new % group.page_size).any():
            return False
        highest = np.maximum(ledger.rows.committed.take(index) - (group.window - 1), 0)
        return 1 not in (new > highest).tobytes() and lets_go_exactly(ledger, change)

    def _step_dispatched(self, ledger: Ledger, event: StepDispatched, _change: Change) -> bool:
        steps = ledger.steps
        if steps and event.step <= next(reversed(steps)):
            return False
        index = ledger.index_of(event.rows)
        if not self._running.knows(ledger, event.rows):
            if not self._held.all_held(ledger, event.rows, index):
                return False
            if None in map(ledger.rows.rid.__getitem__, event.rows.tolist()):
                return False
            self._running.remember(ledger, event.rows)
        if ledger.layout.scheduled and not pool_proofs.all_written(ledger, index):
            return False
        if not ledger.pins:
            return True
        allocated = ledger.rows.allocated.take(index)
        return clear_of_pins(ledger, index, np.zeros_like(allocated), allocated)

    def _writable(self, ledger: Ledger, event: Allocated | RolledBack, change: Change) -> bool:
        """Whether [committed, allocated) of the rows lies on pages that they alone have."""
        index, end = change.index, event.allocated_len
        if index is None or not len(index):
            return True
        start = ledger.rows.committed.take(index)
        if ledger.layout.scheduled:
            start = np.maximum(start, ledger.rows.protected.take(index))
        last = np.subtract(end, self._one)
        for group in ledger.layout.groups:
            if not _exclusive(ledger, group, index, start, last):
                return False
        return True


def _exclusive(ledger: Ledger, group: GroupLayout, index: Index, start: I32, last: I32) -> bool:
    """Whether the pages of positions [start, last] of each row are PRIVATE with one ref."""
    size, width = group.page_size, group.table_width
    if size & (size - 1):
        low, high = start // size, last // size
    else:
        shift = np.array(size.bit_length() - 1, np.int32)
        low, high = start >> shift, last >> shift
    bases = ledger.bases_of(index, width)
    if low.tobytes() == high.tobytes():
        at = bases + high
    else:
        at = spans_of(bases, np.clip(low, 0, width), np.clip(high + 1, 0, width))
    table, space = ledger.tables[group.idx], ledger.spaces[group.space_idx]
    try:
        pages = table.take(at)
        num = len(pages)
        return (
            space.refs.take(pages).tobytes() == ledger.ones_bytes(num)
            and space.state.take(pages).tobytes() == PRIVATE * num
        )
    except IndexError:
        # Lengths beyond the row, after a fault that was let pass: the guards are asked.
        return False


def _cursors_stay(ledger: Ledger, index: Index, cursors: tuple[I32, ...]) -> bool:
    return all(
        column.take(index).tobytes() == new.tobytes()
        for column, new in zip(ledger.rows.cursors, cursors, strict=True)
    )


def _window_idx(group: GroupLayout) -> int:
    assert group.window_idx is not None
    return group.window_idx
