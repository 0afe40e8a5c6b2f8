"""The fold: one function for each kind of event, and nowhere else does state change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kvlife import transitions
from kvlife.events import pool, requests
from kvlife.ledger.books import OpenStep, Pin, Session, Waiting
from kvlife.ledger.hosting import let_go_host, take_host
from kvlife.ledger.moves import (
    cap_noted,
    drop_holder,
    free_row,
    join,
    let_go,
    pin_if_in_flight,
    pin_leaving,
    set_lengths,
    take,
    unbind,
)
from kvlife.ledger.rows import ROW_DRAINING, ROW_HELD, UNBOUNDED
from kvlife.ledger.spaces import NO_KEY, ZERO

if TYPE_CHECKING:
    from kvlife.ledger.change import Change
    from kvlife.ledger.ledger import Ledger

I32 = npt.NDArray[np.int32]


def _bind(ledger: Ledger, event: requests.Admitted | requests.Resumed, seq: int) -> None:
    rows, row = ledger.rows, event.row
    rows.state[row] = ROW_HELD
    rows.renew(row)
    rows.rid[row] = event.rid
    rows.namespace[row] = event.namespace
    rows.prompt_len[row] = event.prompt_len
    rows.floor[row] = event.evict_floor
    rows.in_flight[row] = 0
    rows.last_event[row] = seq
    ledger.requests[event.rid] = row
    ledger.membership += 1


def _admitted(
    ledger: Ledger,
    event: requests.Admitted | requests.Resumed,
    change: Change,
    seq: int,
    stamp: int,
) -> None:
    if event.row == 0:
        return
    _bind(ledger, event, seq)
    join(ledger, change, stamp)
    take(ledger, change, stamp)
    set_lengths(ledger, event.row, change, seq)


def _resumed(ledger: Ledger, event: requests.Resumed, change: Change, seq: int, stamp: int) -> None:
    ledger.waiting.pop(event.rid, None)
    let_go_host(ledger, change.host_gone, stamp)
    _admitted(ledger, event, change, seq, stamp)


def _allocated(
    ledger: Ledger, _event: requests.Allocated, change: Change, seq: int, stamp: int
) -> None:
    take(ledger, change, stamp)
    assert change.index is not None  # a batch event
    lane = ledger.rows.lane(change.index)
    lane.allocated, lane.seq = change.allocated, seq
    lane.num_pages = change.num_pages or {}
    if change.cursors is not None:
        for idx, cursor in enumerate(change.cursors):
            ledger.rows.cursors[idx, change.index] = cursor


def _committed(
    ledger: Ledger, event: requests.Committed, change: Change, seq: int, _stamp: int
) -> None:
    assert change.index is not None  # a batch event
    lane = ledger.rows.lane(change.index)
    lane.committed, lane.seq = event.committed_len, seq


def _protected(
    ledger: Ledger, event: requests.Protected, change: Change, seq: int, stamp: int
) -> None:
    row, old = event.row, int(ledger.rows.protected[event.row])
    for group in ledger.layout.groups:
        table, space = ledger.tables[group.idx], ledger.spaces[group.space_idx]
        base, width = row * group.table_width, group.table_width
        links = event.rebinds[event.rebinds[:, 0] == group.idx] if event.rebinds.size else None
        if links is not None and links.size:
            own, canonical = links[:, 2].copy(), links[:, 3].copy()
            table[base + links[:, 1]] = canonical
            space.join(canonical, stamp)
            pin_if_in_flight(ledger, row, group.idx, own, stamp)
            space.let_go(own, stamp)
        keys = event.keys[group.idx]
        low = min(max(old, 0) // group.page_size, width)
        high = min(low + keys.size, width)
        pages = table[base + low : base + high]
        parents = table[base + max(low - 1, 0) : base + high - 1]
        if low == 0 and high > 0:
            parents = np.concatenate((np.zeros(1, np.int32), parents))
        keys = keys[: high - low]
        chosen = ((keys != NO_KEY) & (pages != ZERO)).tobytes()
        if 1 not in chosen:
            continue
        if 0 not in chosen:
            space.publish(pages, keys, parents, stamp)
        else:
            some = np.frombuffer(chosen, np.bool_)
            space.publish(pages[some], keys[some], parents[some], stamp)
    set_lengths(ledger, row, change, seq)


def _rolled_back(
    ledger: Ledger, event: requests.RolledBack, change: Change, seq: int, stamp: int
) -> None:
    pin_leaving(ledger, change, stamp)
    let_go(ledger, change, stamp)
    set_lengths(ledger, change.index, change, seq)
    if change.index is not None and ledger.steps:
        cap_noted(ledger, change.index, change.allocated)
    committed = dict(zip(event.rows.tolist(), event.committed_len.tolist(), strict=True))
    for group_idx, row, shared, new in event.copies.tolist():
        group = ledger.layout.groups[group_idx]
        space = ledger.spaces[group.space_idx]
        idx = min(max(committed.get(row, 0) // group.page_size, 0), group.table_width - 1)
        ledger.tables[group_idx][row * group.table_width + idx] = new
        pages = np.array([shared], np.int32)
        pin_if_in_flight(ledger, row, group_idx, pages, stamp)
        space.let_go(pages, stamp)
        space.take(np.array([new], np.int32), group_idx, stamp)


def _window_evicted(
    ledger: Ledger, _event: requests.WindowEvicted, change: Change, seq: int, stamp: int
) -> None:
    let_go(ledger, change, stamp)
    set_lengths(ledger, change.index, change, seq)


def _evicted(ledger: Ledger, event: pool.Evicted, _change: Change, _seq: int, stamp: int) -> None:
    for group, pages in zip(ledger.layout.groups, event.pages, strict=True):
        if pages.size:
            ledger.spaces[group.space_idx].evict(pages, stamp)


def _released(
    ledger: Ledger, event: requests.Released, change: Change, seq: int, stamp: int
) -> None:
    ledger.waiting.pop(event.rid, None)
    let_go_host(ledger, change.host_gone, stamp)
    drop_holder(ledger, event.rid, event.row)
    if event.row is not None:
        unbind(ledger, event.row, change, seq, stamp)
    else:
        let_go(ledger, change, stamp)


def _retracted(
    ledger: Ledger, event: requests.Retracted, change: Change, seq: int, stamp: int
) -> None:
    rows, row = ledger.rows, event.row
    ledger.waiting[event.rid] = Waiting(
        prompt_len=int(rows.prompt_len[row]),
        committed_len=int(rows.committed[row]),
        namespace=int(rows.namespace[row]),
        backup=event.backup,
        seq=seq,
    )
    take_host(ledger, change.saved, stamp)
    drop_holder(ledger, event.rid, row)
    unbind(ledger, row, change, seq, stamp)


def _trim(ledger: Ledger, change: Change, seq: int, stamp: int) -> None:
    pin_leaving(ledger, change, stamp)
    let_go(ledger, change, stamp)
    set_lengths(ledger, change.row, change, seq)
    if ledger.steps:
        cap_noted(ledger, np.array([change.row]), change.allocated)
    assert change.row is not None  # only events of one row trim
    ledger.rows.renew(change.row)
    ledger.membership += 1


def _session_saved(
    ledger: Ledger, event: pool.SessionSaved, change: Change, seq: int, stamp: int
) -> None:
    rows, row = ledger.rows, event.row
    _trim(ledger, change, seq, stamp)
    before = ledger.sessions.get(event.session_id)
    ledger.requests.pop(event.rid, None)
    rows.rid[row], rows.session[row] = None, event.session_id
    ledger.sessions[event.session_id] = Session(
        row=row,
        rid=None,
        kept_len=event.kept_len,
        protected_len=int(rows.protected[row]),
        num_turns=1 if before is None else before.num_turns + 1,
        seq=seq,
    )


def _session_restored(
    ledger: Ledger, event: pool.SessionRestored, change: Change, seq: int, stamp: int
) -> None:
    rows, row = ledger.rows, event.row
    _trim(ledger, change, seq, stamp)
    before = ledger.sessions.get(event.session_id)
    rows.rid[row], rows.session[row] = event.rid, event.session_id
    rows.prompt_len[row] = event.prompt_len
    ledger.requests[event.rid] = row
    ledger.sessions[event.session_id] = Session(
        row=row,
        rid=event.rid,
        kept_len=event.kept_len,
        protected_len=int(rows.protected[row]),
        num_turns=0 if before is None else before.num_turns,
        seq=seq,
    )


def _session_closed(
    ledger: Ledger, event: pool.SessionClosed, change: Change, seq: int, stamp: int
) -> None:
    session = ledger.sessions.pop(event.session_id, None)
    if event.row is not None:
        unbind(ledger, event.row, change, seq, stamp)
        return
    let_go(ledger, change, stamp)
    if session is not None and ledger.rows.session[session.row] == event.session_id:
        ledger.rows.session[session.row] = None


def _step_dispatched(
    ledger: Ledger, event: pool.StepDispatched, _change: Change, seq: int, _stamp: int
) -> None:
    rows, index = ledger.rows, ledger.index_of(event.rows)
    rows.in_flight[index] += 1
    rows.newest_step[index] = event.step
    settled = rows.settled.take(index)
    first = settled == UNBOUNDED
    if first.any():
        rows.settled[index] = np.where(first, rows.committed.take(index), settled)
    ledger.steps[event.step] = OpenStep(index, rows.allocated.take(index), seq)


def _step_settled(
    ledger: Ledger, event: pool.StepSettled, change: Change, seq: int, stamp: int
) -> None:
    rows = ledger.rows
    opened = ledger.steps.pop(event.step, None)
    if opened is not None:
        index = opened.rows
        rows.in_flight[index] -= 1
        rows.settled[index] = transitions.higher(rows.settled.take(index), opened.noted)
        for group, pages in opened.pinned:
            ledger.spaces[ledger.layout.groups[group].space_idx].unpin(pages, stamp)
    let_go(ledger, change, stamp)
    for row in event.drained.tolist():
        if rows.state[row] == ROW_DRAINING:
            free_row(ledger, row, seq)


def _pinned(ledger: Ledger, event: pool.Pinned, _change: Change, seq: int, stamp: int) -> None:
    group = ledger.layout.groups[event.group]
    ledger.spaces[group.space_idx].pin(event.pages, stamp)
    ledger.pins[event.pin_id] = Pin(
        kind=event.kind,
        writes=event.writes,
        owner=event.owner,
        group=event.group,
        pages=event.pages,
        seq=seq,
        time_ns=ledger.time_ns,
    )


def _unpinned(ledger: Ledger, event: pool.Unpinned, _change: Change, _seq: int, stamp: int) -> None:
    ledger.pins.pop(event.pin_id, None)
    group = ledger.layout.groups[event.group]
    ledger.spaces[group.space_idx].unpin(event.pages, stamp)


def _resized(ledger: Ledger, event: pool.Resized, _change: Change, _seq: int, _stamp: int) -> None:
    ledger.resize(event.space, event.num_pages)


def _noted(
    _ledger: Ledger, _event: Any, _change: Change, _seq: int, _stamp: int
) -> None:  # Any: marks
    """A note changes nothing but the seq."""


# Any: each function takes the event type it stands beside.
APPLY: dict[type, Callable[[Ledger, Any, Change, int, int], None]] = {
    requests.Admitted: _admitted,
    requests.Resumed: _resumed,
    requests.Allocated: _allocated,
    requests.Committed: _committed,
    requests.Protected: _protected,
    requests.RolledBack: _rolled_back,
    requests.WindowEvicted: _window_evicted,
    requests.Released: _released,
    requests.Retracted: _retracted,
    pool.Evicted: _evicted,
    pool.SessionSaved: _session_saved,
    pool.SessionRestored: _session_restored,
    pool.SessionClosed: _session_closed,
    pool.StepDispatched: _step_dispatched,
    pool.StepSettled: _step_settled,
    pool.Pinned: _pinned,
    pool.Unpinned: _unpinned,
    pool.Resized: _resized,
    pool.Marked: _noted,
    pool.Violated: _noted,
    pool.Digested: _noted,
}
