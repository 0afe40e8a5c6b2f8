"""The moves that events are made of: pages let go, joined and taken, lengths set, rows freed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kvlife.ledger.rows import ROW_DRAINING, ROW_HELD
from kvlife.ledger.spans import At, indices, num_at

if TYPE_CHECKING:
    from kvlife.ledger.change import Change
    from kvlife.ledger.ledger import Ledger

I32 = npt.NDArray[np.int32]

_NO_END = np.iinfo(np.int32).max


def place(table: I32, at: At, pages: I32) -> None:
    """Write pages to table entries; where a faulty event has too few or too many, what fits."""
    wanted = num_at(at)
    if pages.size == wanted:
        table[at] = pages
        return
    spots = indices(at)
    table[spots] = 0
    fitting = min(wanted, pages.size)
    table[spots[:fitting]] = pages[:fitting]


def let_go(ledger: Ledger, change: Change, stamp: int) -> None:
    """The row's entries are cleared, and the pages that the event names lose a ref."""
    if change.gone is None or change.gone_at is None:
        return
    for group, pages, at in zip(ledger.layout.groups, change.gone, change.gone_at, strict=True):
        if num_at(at):
            ledger.tables[group.idx][at] = 0
        if pages.size:
            ledger.spaces[group.space_idx].let_go(pages, stamp)


def join(ledger: Ledger, change: Change, stamp: int) -> None:
    """Entries get shared pages, which gain a ref."""
    if change.joined is None or change.joined_at is None:
        return
    for group, pages, at in zip(ledger.layout.groups, change.joined, change.joined_at, strict=True):
        if pages.size or num_at(at):
            place(ledger.tables[group.idx], at, pages)
            ledger.spaces[group.space_idx].join(pages, stamp)


def take(ledger: Ledger, change: Change, stamp: int) -> None:
    """Entries get FREE pages, which become PRIVATE."""
    if change.taken is None or change.taken_at is None:
        return
    for group, pages, at in zip(ledger.layout.groups, change.taken, change.taken_at, strict=True):
        if pages.size or num_at(at):
            place(ledger.tables[group.idx], at, pages)
            ledger.spaces[group.space_idx].take(pages, group.idx, stamp)


def set_lengths(ledger: Ledger, where: Any, change: Change, seq: int) -> None:  # Any: row or index
    """Write the lengths that change to a row or to the rows of an index."""
    rows = ledger.rows
    if change.protected is not None:
        rows.protected[where] = change.protected
    if change.committed is not None:
        rows.committed[where] = change.committed
    if change.allocated is not None:
        rows.allocated[where] = change.allocated
    if change.settled is not None:
        rows.settled[where] = change.settled
    if change.cursors is not None:
        for idx, cursor in enumerate(change.cursors):
            if cursor is not None:
                rows.cursors[idx, where] = cursor
    rows.last_event[where] = seq


def pin_if_in_flight(ledger: Ledger, row: int, group: int, pages: I32, stamp: int) -> None:
    """Pages that leave a row in flight stay untouched until its newest step has settled."""
    if ledger.rows.in_flight[row] > 0:
        _pin_under(ledger, int(ledger.rows.newest_step[row]), group, pages, stamp)


def _pin_under(ledger: Ledger, step: int, group: int, pages: I32, stamp: int) -> None:
    opened = ledger.steps.get(step)
    if opened is None or not pages.size:
        return
    opened.pinned.append((group, pages))
    ledger.spaces[ledger.layout.groups[group].space_idx].pin(pages, stamp)


def pin_leaving(ledger: Ledger, change: Change, stamp: int) -> None:
    """Pin what leaves HELD rows in flight, as the table says, under each row's newest step."""
    if change.gone_at is None:
        return
    if change.index is None:
        assert change.row is not None  # a change of one row
        for group, at in zip(ledger.layout.groups, change.gone_at, strict=True):
            pages = ledger.tables[group.idx][at]
            pin_if_in_flight(ledger, change.row, group.idx, pages[pages != 0], stamp)
        return
    flying = change.index[ledger.rows.in_flight[change.index] > 0]
    if not flying.size:
        return
    for group, at in zip(ledger.layout.groups, change.gone_at, strict=True):
        spots = indices(at)
        owners = spots // group.table_width
        for step in np.unique(ledger.rows.newest_step[flying]):
            ours = flying[ledger.rows.newest_step[flying] == step]
            pages = ledger.tables[group.idx][spots[np.isin(owners, ours)]]
            _pin_under(ledger, int(step), group.idx, pages[pages != 0], stamp)


def cap_noted(
    ledger: Ledger, rows: npt.NDArray[np.intp], lengths: Any
) -> None:  # Any: int or array
    """What a step noted above the new end of a row will never settle."""
    ends = np.full(ledger.layout.num_rows, _NO_END, np.int32)
    ends[rows] = lengths
    for opened in ledger.steps.values():
        np.minimum(opened.noted, ends.take(opened.rows), out=opened.noted)


def free_row(ledger: Ledger, row: int, seq: int) -> None:
    """The row can be bound again."""
    ledger.rows.reset(row)
    ledger.rows.last_event[row] = seq
    ledger.membership += 1


def unbind(ledger: Ledger, row: int, change: Change, seq: int, stamp: int) -> None:
    """The row lets go and becomes FREE, or DRAINING while steps in flight name it."""
    rows = ledger.rows
    let_go(ledger, change, stamp)
    if rows.state[row] != ROW_HELD:
        return
    if rows.in_flight[row] > 0:
        rows.state[row] = ROW_DRAINING
        rows.renew(row)
        rows.rid[row] = rows.session[row] = None
        rows.last_event[row] = seq
        ledger.membership += 1
    else:
        free_row(ledger, row, seq)


def drop_holder(ledger: Ledger, rid: str, row: int | None) -> None:
    """The request is gone from the books, and its session with it where it ran a turn."""
    bound = ledger.requests.pop(rid, None)
    row = bound if row is None else row
    if row is None:
        return
    session = ledger.rows.session[row]
    if session is not None and ledger.rows.rid[row] == rid:
        ledger.sessions.pop(session, None)
