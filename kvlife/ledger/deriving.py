"""What an event means for this state: lengths after it, and the table entries it concerns.

`derive` reads the ledger and the event and changes nothing. The guards hold its answer against the
pages that the event names; `apply` writes what the event names to the entries derived here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kvlife import transitions
from kvlife.events import pool, requests
from kvlife.ledger.allocating import derive_allocated
from kvlife.ledger.change import Change
from kvlife.ledger.entries import row_entries, rows_entries, span_entries
from kvlife.ledger.hosting import restored_to, saved_by
from kvlife.ledger.rows import ROW_HELD, UNBOUNDED
from kvlife.ledger.spans import NOWHERE, At, entries_in, spans_of

if TYPE_CHECKING:
    from kvlife.events import Event
    from kvlife.ledger.ledger import Ledger


def derive(ledger: Ledger, event: Event) -> Change:
    """The change that a well-formed event makes to this ledger."""
    return _DERIVE[type(event)](ledger, event)


def _admitted(ledger: Ledger, event: requests.Admitted | requests.Resumed) -> Change:
    prefix = event.prefix_len
    return Change(
        row=event.row,
        protected=prefix,
        committed=prefix,
        allocated=prefix,
        settled=UNBOUNDED,
        cursors=event.evicted_len,
        joined_at=_bound_entries(ledger, event, 0, prefix),
        joined=event.pages,
    )


def _bound_entries(
    ledger: Ledger, event: requests.Admitted | requests.Resumed, low_len: int, high_len: int
) -> tuple[At, ...]:
    """As `row_entries`, under the floor and the cursors that the event binds its row with."""
    return tuple(
        span_entries(
            group,
            event.row,
            low_len,
            high_len,
            event.evict_floor,
            0 if group.window_idx is None else event.evicted_len[group.window_idx],
        )
        for group in ledger.layout.groups
    )


def _resumed(ledger: Ledger, event: requests.Resumed) -> Change:
    change = _admitted(ledger, event)
    change.committed = change.allocated = event.restored_len
    change.taken = event.restored
    change.taken_at = _bound_entries(ledger, event, event.prefix_len, event.restored_len)
    change.restored = restored_to(ledger, event.rid, event.row, change.taken_at, event.restored)
    waiting = ledger.waiting.get(event.rid)
    change.host_gone = None if waiting is None else waiting.backup
    return change


def _allocated(ledger: Ledger, event: requests.Allocated) -> Change:
    index = ledger.index_of(event.rows)
    change = derive_allocated(ledger, index, event.allocated_len, event.evicted_len)
    change.taken = event.pages
    return change


def _committed(ledger: Ledger, event: requests.Committed) -> Change:
    return Change(index=ledger.index_of(event.rows), committed=event.committed_len)


def _protected(ledger: Ledger, event: requests.Protected) -> Change:
    old = int(ledger.rows.protected[event.row])
    return Change(row=event.row, protected=event.protected_len, old_protected=old)


def _rolled_back(ledger: Ledger, event: requests.RolledBack) -> Change:
    index = ledger.index_of(event.rows)
    rows = ledger.rows
    old = rows.allocated.take(index)
    new = event.allocated_len
    cursors = tuple(
        transitions.cursor_after_roll_back(
            rows.cursors[group.window_idx][index],
            event.committed_len,
            group.window or 1,
            group.page_size,
        )
        for group in ledger.layout.window_groups
    )
    return Change(
        index=index,
        committed=event.committed_len,
        allocated=new,
        settled=transitions.settled_after_roll_back(rows.settled.take(index), new, UNBOUNDED),
        cursors=cursors or None,
        old_allocated=old,
        gone_at=rows_entries(ledger, index, new, old),
        gone=event.pages,
    )


def _window_evicted(ledger: Ledger, event: requests.WindowEvicted) -> Change:
    group = ledger.layout.groups[event.group]
    index = ledger.index_of(event.rows)
    nothing = (NOWHERE,) * len(ledger.layout.groups)
    if group.window_idx is None:
        return Change(index=index, gone_at=nothing, gone=ledger.no_pages)
    old = ledger.rows.cursors[group.window_idx][index]
    end = np.minimum(event.evicted_len, ledger.rows.allocated.take(index))
    low, high = np.maximum(old, ledger.rows.floor.take(index)), end
    size, width = group.page_size, group.table_width
    at = spans_of(
        index * width,
        entries_in(-(-low // size), width),
        entries_in(np.where(end < event.evicted_len, -(-high // size), high // size), width),
    )
    cursors = tuple(
        event.evicted_len if other.idx == group.idx else None
        for other in ledger.layout.window_groups
    )
    return Change(
        index=index,
        cursors=cursors,
        gone_at=_replaced(nothing, group.idx, at),
        gone=_replaced(ledger.no_pages, group.idx, event.pages),
    )


# Any: pages or positions.
def _replaced(values: tuple[Any, ...], idx: int, value: object) -> tuple[Any, ...]:
    return (*values[:idx], value, *values[idx + 1 :])


def _gone(
    ledger: Ledger, event: requests.Released | requests.Retracted | pool.SessionClosed
) -> Change:
    """A row that goes: all it references is let go, unless a step in flight still reads it."""
    row = event.row
    change = Change(row=row, gone=event.pages)
    if row is None or ledger.rows.in_flight[row] > 0 or ledger.rows.state[row] != ROW_HELD:
        change.gone_at = (NOWHERE,) * len(ledger.layout.groups)
    else:
        change.gone_at = row_entries(ledger, row, 0, int(ledger.rows.allocated[row]))
    return change


def _released(ledger: Ledger, event: requests.Released) -> Change:
    change = _gone(ledger, event)
    change.host_gone = event.host_pages
    return change


def _retracted(ledger: Ledger, event: requests.Retracted) -> Change:
    change = _gone(ledger, event)
    change.saved = saved_by(ledger, event.row, event.backup)
    return change


def _trimmed(ledger: Ledger, event: pool.SessionSaved | pool.SessionRestored) -> Change:
    rows, row, kept = ledger.rows, event.row, event.kept_len
    old = int(rows.allocated[row])
    change = Change(
        row=row,
        committed=kept,
        allocated=kept,
        settled=transitions.settled_after_roll_back(int(rows.settled[row]), kept, UNBOUNDED),
        cursors=tuple(
            transitions.cursor_after_roll_back(
                int(rows.cursors[group.window_idx, row]), kept, group.window or 1, group.page_size
            )
            for group in ledger.layout.window_groups
        ),
        old_allocated=old,
        gone_at=row_entries(ledger, row, kept, old),
        gone=event.pages,
    )
    if isinstance(event, pool.SessionRestored) and kept < rows.protected[row]:
        change.protected = kept
    return change


def _settled(ledger: Ledger, event: pool.StepSettled) -> Change:
    index = ledger.index_of(event.drained)
    if not index.size:
        at: tuple[At, ...] = (NOWHERE,) * len(ledger.layout.groups)
    elif index.size == 1:
        row = int(index[0])
        at = row_entries(ledger, row, 0, int(ledger.rows.allocated[row]))
    else:
        old = ledger.rows.allocated.take(index)
        at = rows_entries(ledger, index, np.zeros_like(old), old)
    return Change(index=index, gone_at=at, gone=event.pages)


def _nothing(_ledger: Ledger, _event: Event) -> Change:
    return Change()


# Any: each function takes the event type it stands beside.
_DERIVE: dict[type, Callable[[Ledger, Any], Change]] = {
    requests.Admitted: _admitted,
    requests.Resumed: _resumed,
    requests.Allocated: _allocated,
    requests.Committed: _committed,
    requests.Protected: _protected,
    requests.RolledBack: _rolled_back,
    requests.WindowEvicted: _window_evicted,
    requests.Released: _released,
    requests.Retracted: _retracted,
    pool.SessionClosed: _gone,
    pool.SessionSaved: _trimmed,
    pool.SessionRestored: _trimmed,
    pool.StepSettled: _settled,
    pool.Evicted: _nothing,
    pool.StepDispatched: _nothing,
    pool.Pinned: _nothing,
    pool.Unpinned: _nothing,
    pool.Resized: _nothing,
    pool.Marked: _nothing,
    pool.Violated: _nothing,
    pool.Digested: _nothing,
}
