r"""Fast proofs: a few array operations that show, for most events, that every guard holds.

A proof answers True only where no guard of the catalogue could find a fault; where it is not sure
it answers False, and the guards are asked. So a proof that is too strict costs time, and one that
is too lax is a bug, which a property test hunts.

Comparing bytes is how it is fast: `array.tobytes() == b"\1" * n` is a quarter of the cost of
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
    Digested,
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
from kvlife.invariants.page_proofs import PRIVATE, clear_of_pins, lets_go_exactly, takes_free
from kvlife.invariants.published_keys import PublishedKeys
from kvlife.invariants.standing import HeldRows, OwnPages
from kvlife.ledger.spans import entries_in, spans_of

if TYPE_CHECKING:
    from kvlife.config import GroupLayout
    from kvlife.events import Event
    from kvlife.invariants.page_proofs import I32, Index
    from kvlife.ledger import Change, Lane, Ledger

Proof = Callable[["Ledger", Any, "Change"], bool]  # Any: the event class that the proof is for


class Proofs:
    """The proofs of one checker, with what they remember from event to event.

    `seen` says how many events its checker has seen, those that it passed over included.
    """

    def __init__(self, seen: Callable[[], int]) -> None:
        """Nothing is remembered yet."""
        self._own = OwnPages()
        self._keys = PublishedKeys(seen)
        self._held = HeldRows()
        self._running = HeldRows()
        self._capacity_len = 0
        self._capacity = np.array(0, np.int32)
        self._before: dict[type, Proof] = {
            Admitted: row_proofs.admitted,
            Resumed: row_proofs.resumed,
            Allocated: self._allocated,
            Committed: self._committed,
            Protected: self._protected,
            RolledBack: self._rolled_back,
            WindowEvicted: self._window_evicted,
            Released: row_proofs.released,
            Retracted: row_proofs.retracted,
            Evicted: self._evicted,
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
            Digested: lambda _ledger, _event, _change: True,
        }
        self._after: dict[type, Proof] = {
            Allocated: self._allocation_writable,
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
        if self._capacity_len != ledger.layout.capacity:
            self._capacity_len = ledger.layout.capacity
            self._capacity = np.array(self._capacity_len, np.int32)
        # Lengths that do not shrink stay above committed if they were, so that is not gathered.
        if 1 in (new > self._capacity).tobytes() or 1 in (new < change.old_allocated).tobytes():
            return False
        if event.evicted_len is not None and not _skips_well(ledger, event, change):
            return False
        return change.taken_at is not None and takes_free(ledger, event.pages, change.taken_at)

    def _committed(self, ledger: Ledger, event: Committed, change: Change) -> bool:
        index, new = change.index, event.committed_len
        if index is None or not self._held.all_held(ledger, event.rows, index):
            return False
        lane = ledger.rows.lane(index)
        if new is not lane.allocated and 1 in (new > lane.allocated).tobytes():
            return False
        if not lane.unbounded and 1 in (new > lane.settled).tobytes():
            return False
        if 1 in (new < lane.committed).tobytes():
            return False
        return not ledger.pins or clear_of_pins(ledger, index, lane.committed, new)

    def _protected(self, ledger: Ledger, event: Protected, change: Change) -> bool:
        new = ledger.layout.duplicates or self._keys.publish(ledger, event)
        return new and row_proofs.protected(ledger, event, change)

    def _evicted(self, ledger: Ledger, event: Evicted, change: Change) -> bool:
        if not ledger.layout.duplicates:
            self._keys.evict(ledger, event)
        return pool_proofs.evicted(ledger, event, change)

    def _rolled_back(self, ledger: Ledger, event: RolledBack, change: Change) -> bool:
        index, rows = change.index, ledger.rows
        end, new = event.allocated_len, event.committed_len
        if index is None or not self._held.all_held(ledger, event.rows, index):
            return False
        if event.copies.size or 1 in (end > change.old_allocated).tobytes():
            return False
        if 1 in (new > end).tobytes() or 1 in (new > rows.lane(index).committed).tobytes():
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
        highest = np.maximum(ledger.rows.lane(index).committed - (group.window - 1), 0)
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
        allocated = ledger.rows.lane(index).allocated
        return clear_of_pins(ledger, index, np.zeros_like(allocated), allocated)

    def _allocation_writable(self, ledger: Ledger, event: Allocated, change: Change) -> bool:
        """Whether the allocated ends lie on pages that the rows alone have.

        Where that was proven up to the old ends, and nothing has happened to these rows since, the
        pages that were taken are all that is new: the rest of a row's last page is its own too.
        """
        lane = None if change.index is None else ledger.rows.lane_at(change.index)
        if lane is None or not self._own.reach(lane, change.old_allocated):
            if lane is not None and len(lane.index) == 1:
                return _one_row_writable(ledger, lane)
            return self._writable(ledger, event, change)
        for group, pages in zip(ledger.layout.groups, event.pages, strict=True):
            if len(pages) and not _alone(ledger, group, pages):
                return False
        self._own.note(lane)
        return True

    def build_on_nothing(self) -> None:
        """From now on prove each allocation from the columns alone."""
        self._after[Allocated] = self._writable

    def pass_over(self, ledger: Ledger, event: Event) -> None:
        """An event that is not checked: the keys that it gives and takes are noted."""
        if ledger.layout.duplicates:
            return
        if isinstance(event, Protected):
            self._keys.publish(ledger, event)
        elif isinstance(event, Evicted):
            self._keys.evict(ledger, event)

    def forget(self) -> None:
        """A fault was found: what was proven of a batch may not stand any longer."""
        self._own.forget()

    def forget_columns(self) -> None:
        """An audit found a fault: the columns may not be what the events made them."""
        self._keys.forget()

    def _writable(self, ledger: Ledger, event: Allocated | RolledBack, change: Change) -> bool:
        """Whether [committed, allocated) of the rows lies on pages that they alone have."""
        index, end = change.index, event.allocated_len
        if index is None:
            return False
        lane = ledger.rows.lane(index)
        start = lane.committed
        if ledger.layout.scheduled:
            start = np.maximum(start, ledger.rows.protected.take(index))
        some = start < end
        whole = 0 not in some.tobytes()
        if not whole:
            index, start, end = index[some], start[some], end[some]
        last = end - 1
        try:
            for group in ledger.layout.groups:
                at = _last_entries(ledger, group, index, last)
                if not _alone(ledger, group, ledger.tables[group.idx].take(at)):
                    return False
                if not _rest_alone(ledger, group, index, start, last):
                    return False
        except IndexError:
            # Lengths or pages beyond their tables, after a fault let pass: the guards are asked.
            return False
        if whole:
            self._own.note(lane)
        return True


def _one_row_writable(ledger: Ledger, lane: Lane) -> bool:
    """As `_writable` for one row, whose entries lie side by side."""
    row, start, end = int(lane.index[0]), int(lane.committed[0]), int(lane.allocated[0])
    if ledger.layout.scheduled:
        start = max(start, int(ledger.rows.protected[row]))
    if not 0 <= start <= end <= ledger.layout.capacity:
        return False
    for group in ledger.layout.groups:
        base = row * group.table_width
        low, high = start // group.page_size, -(-end // group.page_size)
        pages = ledger.tables[group.idx][base + low : base + high]
        if group.window is not None:
            # Positions that a window has skipped have no page.
            pages = pages[pages != 0]
        if not _alone(ledger, group, pages):
            return False
    return True


def _last_entries(ledger: Ledger, group: GroupLayout, index: Index, last: I32) -> Index:
    at: Index = ledger.bases_of(index, group.table_width) + last // group.page_size
    return at


def _alone(ledger: Ledger, group: GroupLayout, pages: Index | I32) -> bool:
    """Whether these pages are PRIVATE with one ref."""
    space, num = ledger.spaces[group.space_idx], len(pages)
    return (
        space.refs.take(pages).tobytes() == ledger.ones_bytes(num)
        and space.state.take(pages).tobytes() == PRIVATE * num
    )


def _rest_alone(ledger: Ledger, group: GroupLayout, index: Index, start: I32, last: I32) -> bool:
    """As `_alone`, for the pages of [start, last] before the last one."""
    low, high = start // group.page_size, last // group.page_size
    if low.tobytes() == high.tobytes():
        return True
    width = group.table_width
    at = spans_of(ledger.bases_of(index, width), entries_in(low, width), entries_in(high, width))
    pages = ledger.tables[group.idx].take(at)
    if group.window is not None:
        # Positions that a window has skipped have no page.
        pages = pages[pages != 0]
    return _alone(ledger, group, pages)


def _skips_well(ledger: Ledger, event: Allocated, change: Change) -> bool:
    """Whether cursors stay, or skip the front of rows that had nothing."""
    fresh = change.old_allocated == 0
    for group, new in zip(ledger.layout.window_groups, event.evicted_len or (), strict=True):
        old = ledger.rows.cursors[_window_idx(group)].take(change.index)
        skips = fresh & (old <= new) & (new <= event.allocated_len) & (new % group.page_size == 0)
        if not ((new == old) | skips).all():
            return False
    return True


def _window_idx(group: GroupLayout) -> int:
    assert group.window_idx is not None
    return group.window_idx
