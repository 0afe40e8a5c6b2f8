"""Mending: the sound event that is nearest to one of a program, in a state that it was not made in.

What the event names that is not there is left out, lengths are cut to what the state allows, and
pages are those that the state derives. None means that nothing of the event is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from kvlife import transitions
from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Event,
    Evicted,
    Marked,
    PageLists,
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
    WindowEvicted,
)
from kvlife.ledger import EMPTY, Ledger, PageState, RowState, derive, kept_pages
from kvlife.ledger.entries import span_entries
from kvlife.ledger.spans import NOWHERE, At, indices
from kvlife.replay.shrinking.publishing import mend_protected
from kvlife.replay.shrinking.reading import Piece, int32s
from kvlife.replay.shrinking.state import State, frozen


def mend(state: State, piece: Piece) -> Event | None:
    """The sound form of a piece in this state, or None."""
    event = piece.event
    if isinstance(event, Admitted | Resumed):
        state.life_of[event.row] = piece.lives[0]
    elif isinstance(event, StepDispatched):
        return _dispatched(state, event, piece.lives)
    elif piece.lives:
        row = event.rows[0] if isinstance(event, _BATCHES) else getattr(event, "row", None)
        if row is not None and not state.has(int(row), piece.lives[0]):
            return None
    return _MEND[type(event)](state, event)


_BATCHES = (Allocated, Committed, RolledBack, WindowEvicted)


def _admitted(state: State, event: Admitted) -> Event | None:
    prefix_len, cursors, pages = _prefix(state, event)
    return attrs.evolve(event, prefix_len=prefix_len, evicted_len=cursors, pages=pages)


def _resumed(state: State, event: Resumed) -> Event | None:
    prefix_len, cursors, pages = _prefix(state, event)
    waiting = state.ledger.waiting.get(event.rid)
    if waiting is None:
        # What it was before is gone: this is where its life begins.
        return Admitted(
            event.rid, event.row, event.namespace, event.prompt_len, prefix_len,
            event.evict_floor, cursors, pages,
        )  # fmt: skip
    backed_up = 0 if waiting.backup is None else waiting.committed_len
    restored_len = max(min(event.restored_len, backed_up), prefix_len)
    at: tuple[At, ...] = tuple(
        span_entries(group, event.row, prefix_len, restored_len, event.evict_floor, cursor)
        for group, cursor in _with_cursors(state.ledger, cursors)
    )
    if not state.backs(event.rid, event.row, at):
        # What the backup held was another life's, or less than the run had.
        restored_len, at = prefix_len, (NOWHERE,) * len(at)
    restored = state.wished(event.row, at)
    if restored is None:
        return None
    return attrs.evolve(
        event,
        prefix_len=prefix_len,
        evicted_len=cursors,
        pages=pages,
        restored_len=restored_len,
        restored=restored,
    )


def _prefix(state: State, event: Admitted | Resumed) -> tuple[int, tuple[int, ...], PageLists]:
    """As much of the prefix as is CACHED here: its length, cursors and pages."""
    ledger = state.ledger
    align = ledger.layout.align
    length = max(transitions.page_floor(min(event.prefix_len, ledger.layout.capacity), align), 0)
    cursors = event.evicted_len
    life = state.lives[state.life_of[event.row]]
    while True:
        lists, reach = [], length
        for group, cursor in _with_cursors(ledger, cursors):
            at = span_entries(group, event.row, 0, length, event.evict_floor, cursor)
            entries = (indices(at) - event.row * group.table_width).tolist()
            pages = np.array([life.pages[group.idx].get(entry, 0) for entry in entries], np.int32)
            space = ledger.spaces[group.space_idx]
            pages[pages >= space.num_pages] = 0
            there = (space.state[pages] == PageState.CACHED) & (space.group[pages] == group.idx)
            missing = np.flatnonzero(~there)
            if missing.size:
                reach = min(reach, entries[int(missing[0])] * group.page_size)
            lists.append(frozen(pages))
        if reach == length:
            return length, cursors, tuple(lists)
        # Less of a prefix with windows would need window pages that the run did not match.
        length = 0 if cursors else transitions.page_floor(reach, align)
        cursors = (0,) * len(cursors)


def _with_cursors(ledger: Ledger, cursors: tuple[int, ...]) -> list[tuple[Any, int]]:  # Any: group
    return [
        (group, 0 if group.window_idx is None else cursors[group.window_idx])
        for group in ledger.layout.groups
    ]


def _allocated(state: State, event: Allocated) -> Event | None:
    ledger, row = state.ledger, int(event.rows[0])
    length = min(int(event.allocated_len[0]), ledger.layout.capacity)
    if length <= ledger.rows.allocated[row]:
        return None
    event = attrs.evolve(event, allocated_len=int32s([length]))
    if event.evicted_len is not None:
        cursors = tuple(
            int32s([_skipped_to(ledger, row, group.page_size, old, int(new[0]), length)])
            for group, old, new in zip(
                ledger.layout.window_groups,
                ledger.rows.cursors[:, row].tolist(),
                event.evicted_len,
                strict=True,
            )
        )
        event = attrs.evolve(event, evicted_len=cursors)
    at = derive(ledger, event).taken_at
    assert at is not None  # an Allocated has entries to take
    pages = state.wished(row, at)
    return None if pages is None else attrs.evolve(event, pages=pages)


def _skipped_to(ledger: Ledger, row: int, page_size: int, old: int, new: int, length: int) -> int:
    """A cursor that skips what never had pages: only where the row has none above its floor."""
    if ledger.rows.allocated[row] > ledger.rows.floor[row]:
        return old
    return max(old, transitions.page_floor(min(new, length), page_size))


def _committed(state: State, event: Committed) -> Event | None:
    rows, row = state.ledger.rows, int(event.rows[0])
    bound = min(int(rows.settled[row]), int(rows.allocated[row]))
    length = min(int(event.committed_len[0]), bound)
    if length <= rows.committed[row]:
        return None
    return Committed(event.rows, int32s([length]))


def _rolled_back(state: State, event: RolledBack) -> Event | None:
    rows, row = state.ledger.rows, int(event.rows[0])
    old_allocated, old_committed = int(rows.allocated[row]), int(rows.committed[row])
    allocated = min(int(event.allocated_len[0]), old_allocated)
    committed = min(int(event.committed_len[0]), old_committed, allocated)
    committed = max(committed, int(rows.protected[row]))
    allocated = max(allocated, committed)
    if (allocated, committed) == (old_allocated, old_committed):
        return None
    cut = attrs.evolve(event, allocated_len=int32s([allocated]), committed_len=int32s([committed]))
    at = derive(state.ledger, cut).gone_at
    assert at is not None  # a RolledBack has entries to let go
    return attrs.evolve(cut, pages=state.held(at))


def _window_evicted(state: State, event: WindowEvicted) -> Event | None:
    ledger, row = state.ledger, int(event.rows[0])
    group = ledger.layout.groups[event.group]
    if group.window is None or group.window_idx is None:
        return None
    bound = transitions.cursor_bound(int(ledger.rows.committed[row]), group.window, group.page_size)
    cursor = min(transitions.page_floor(int(event.evicted_len[0]), group.page_size), bound)
    if cursor <= ledger.rows.cursors[group.window_idx, row]:
        return None
    moved = attrs.evolve(event, evicted_len=int32s([cursor]))
    at = derive(ledger, moved).gone_at
    assert at is not None  # a WindowEvicted has entries to let go
    return attrs.evolve(moved, pages=state.held(at)[event.group])


def _released(state: State, event: Released) -> Event | None:
    ledger = state.ledger
    waiting = ledger.waiting.get(event.rid)
    row = ledger.requests.get(event.rid)
    if row is None and waiting is None:
        return None
    host_pages = EMPTY
    if row is None and waiting is not None:
        host_pages = EMPTY if waiting.backup is None else waiting.backup
        committed, prompt = waiting.committed_len, waiting.prompt_len
    else:
        committed, prompt = int(ledger.rows.committed[row]), int(ledger.rows.prompt_len[row])
    reason = event.reason
    if reason == "finished" and committed < prompt:
        reason = "aborted"
    return _lets_go(state, attrs.evolve(event, row=row, reason=reason, host_pages=host_pages))


def _retracted(state: State, event: Retracted) -> Event | None:
    if event.rid not in state.ledger.requests:
        return None
    if event.backup is not None and state.ledger.host is not None:
        num = kept_pages(state.ledger, event.row).pages.size
        event = attrs.evolve(event, backup=state.host_pages(event.rid, event.backup, num))
    return _lets_go(state, event)


def _lets_go(state: State, event: Any) -> Event:  # Any: an event with a page list for each group
    at = derive(state.ledger, event).gone_at
    assert at is not None  # only events that let go come here
    gone: Event = attrs.evolve(event, pages=state.held(at))
    return gone


def _session_saved(state: State, event: SessionSaved) -> Event | None:
    return _lets_go(
        state, attrs.evolve(event, kept_len=int(state.ledger.rows.committed[event.row]))
    )


def _session_restored(state: State, event: SessionRestored) -> Event | None:
    rows, row = state.ledger.rows, event.row
    kept = max(min(event.kept_len, int(rows.committed[row])), 0)
    if kept < rows.protected[row]:
        kept = transitions.page_floor(kept, state.ledger.layout.align)
    return _lets_go(state, attrs.evolve(event, kept_len=kept))


def _session_closed(state: State, event: SessionClosed) -> Event | None:
    session = state.ledger.sessions.get(event.session_id)
    if session is None:
        return None
    row = session.row if session.rid is None else None
    return _lets_go(state, attrs.evolve(event, row=row))


def _evicted(state: State, event: Evicted) -> Event | None:
    lists = []
    for group, pages in zip(state.ledger.layout.groups, event.pages, strict=True):
        space = state.ledger.spaces[group.space_idx]
        idle = (space.state[pages] == PageState.CACHED) & (space.group[pages] == group.idx)
        idle &= (space.refs[pages] == 0) & (space.pins[pages] == 0)
        lists.append(frozen(pages[idle]))
    return attrs.evolve(event, pages=tuple(lists)) if any(map(len, lists)) else None


def _dispatched(state: State, event: StepDispatched, lives: tuple[int, ...]) -> Event | None:
    columns = state.ledger.rows
    rows = [
        row
        for row, life in zip(event.rows.tolist(), lives, strict=True)
        if state.has(row, life)
        and columns.state[row] == RowState.HELD
        and columns.rid[row] is not None
    ]
    return StepDispatched(event.step, int32s(rows)) if rows else None


def _settled(state: State, event: StepSettled) -> Event | None:
    ledger = state.ledger
    opened = ledger.steps.get(event.step)
    if opened is None:
        return None
    rows = ledger.rows
    last = (rows.state[opened.rows] == RowState.DRAINING) & (rows.in_flight[opened.rows] == 1)
    drained = frozen(opened.rows[last].astype(np.int32))
    return _lets_go(state, StepSettled(event.step, drained, ledger.no_pages))


def _pinned(state: State, event: Pinned) -> Event | None:
    space = state.ledger.spaces[state.ledger.layout.groups[event.group].space_idx]
    pages = event.pages[space.state[event.pages] != PageState.FREE]
    return attrs.evolve(event, pages=frozen(pages)) if pages.size else None


def _unpinned(state: State, event: Unpinned) -> Event | None:
    pin = state.ledger.pins.get(event.pin_id)
    return None if pin is None else Unpinned(event.pin_id, pin.group, pin.pages)


def _as_it_is(_state: State, event: Event) -> Event | None:
    return event


# Any: each function takes the event type it stands beside.
_MEND: dict[type, Callable[[State, Any], Event | None]] = {
    Admitted: _admitted,
    Resumed: _resumed,
    Allocated: _allocated,
    Committed: _committed,
    Protected: mend_protected,
    RolledBack: _rolled_back,
    WindowEvicted: _window_evicted,
    Released: _released,
    Retracted: _retracted,
    Evicted: _evicted,
    SessionSaved: _session_saved,
    SessionRestored: _session_restored,
    SessionClosed: _session_closed,
    StepSettled: _settled,
    Pinned: _pinned,
    Unpinned: _unpinned,
    Resized: _as_it_is,
    Marked: _as_it_is,
}
