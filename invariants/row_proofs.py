"""Fast proofs for the events of one row: bound, published, released, saved and restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvlife import transitions
from kvlife.invariants.page_proofs import (
    CACHED,
    PRIVATE,
    distinct,
    joins_cached,
    lets_go_exactly,
    takes_free,
)
from kvlife.ledger.rows import ROW_FREE, ROW_HELD

if TYPE_CHECKING:
    from kvlife.config import GroupLayout
    from kvlife.events import (
        Admitted,
        PageLists,
        Protected,
        Released,
        Resumed,
        Retracted,
        SessionClosed,
        SessionRestored,
        SessionSaved,
    )
    from kvlife.invariants.page_proofs import I32
    from kvlife.ledger import Change, Ledger


def admitted(ledger: Ledger, event: Admitted, change: Change) -> bool:
    """The row is FREE, the request new, the prefix whole pages of CACHED ones."""
    return event.rid not in ledger.waiting and _binds(ledger, event, change, event.prefix_len)


def resumed(ledger: Ledger, event: Resumed, change: Change) -> bool:
    """As `admitted`, for a request that waits; what is restored was in its backup, all of it."""
    waiting = ledger.waiting.get(event.rid)
    if waiting is None or not _gives_back(ledger, change.host_gone):
        return False
    if event.restored_len == event.prefix_len and not any(map(len, event.restored)):
        return _binds(ledger, event, change, event.prefix_len)
    restored = change.restored
    if restored is None or waiting.backup is None or change.taken_at is None:
        return False
    if not event.prefix_len <= event.restored_len <= waiting.committed_len:
        return False
    if event.restored_len > ledger.layout.capacity or 0 in restored.host_pages:
        return False
    if not takes_free(ledger, event.restored, change.taken_at):
        return False
    return _binds(ledger, event, change, event.restored_len)


def _gives_back(ledger: Ledger, host_pages: I32 | None) -> bool:
    """Whether these host pages are in use, each once; where the ledger knows the host's pages."""
    host = ledger.host
    if host is None or host_pages is None or not len(host_pages):
        return True
    in_use = host.state.take(host_pages).tobytes() == PRIVATE * len(host_pages)
    return in_use and distinct(host_pages)


def _binds(ledger: Ledger, event: Admitted | Resumed, change: Change, committed: int) -> bool:
    layout, prefix = ledger.layout, event.prefix_len
    if event.rid in ledger.requests or ledger.rows.state[event.row] != ROW_FREE:
        return False
    if not 0 <= prefix <= layout.capacity or prefix % layout.align:
        return False
    if event.prompt_len < 0 or event.evict_floor < 0:
        return False
    for group, cursor in zip(layout.window_groups, event.evicted_len, strict=True):
        bound = transitions.cursor_bound(committed, group.window or 0, group.page_size)
        if not 0 <= cursor <= bound or cursor % group.page_size:
            return False
    return change.joined_at is not None and joins_cached(ledger, event.pages, change.joined_at)


def protected(ledger: Ledger, event: Protected, _change: Change) -> bool:
    """The published length grows by whole pages, all of them PRIVATE until they are rebound.

    Whether their keys are new is asked elsewhere.
    """
    rows, row, layout = ledger.rows, event.row, ledger.layout
    if rows.state[row] != ROW_HELD:
        return False
    old, new = int(rows.protected[row]), event.protected_len
    top = rows.allocated[row] if layout.scheduled else rows.committed[row]
    if not 0 <= old <= new <= top or new % layout.align or not _prefix_may_move(ledger, row):
        return False
    writers = ledger.pins and any(pin.writes for pin in ledger.pins.values())
    for group in layout.groups:
        size, keys = group.page_size, event.keys[group.idx]
        low = old // size
        if len(keys) != new // size - low:
            return False
        if not len(keys):
            continue
        start = row * group.table_width + low
        pages = ledger.tables[group.idx][start : start + len(keys)]
        if low + len(keys) > group.table_width:
            return False
        space = ledger.spaces[group.space_idx]
        # A writer is in the way of the whole range, of entries without a key too.
        if writers and space.pins.take(pages).any():
            return False
        if np.count_nonzero(keys) != len(keys):
            given = keys != 0
            pages, keys = pages[given], keys[given]
        try:
            if space.state.take(pages).tobytes() != PRIVATE * len(pages):
                return False
        except IndexError:
            # A page beyond a space that was resized in error: the guards are asked.
            return False
    groups = layout.groups
    return not event.rebinds.size or all(_rebinds(ledger, event, group, old) for group in groups)


def _rebinds(ledger: Ledger, event: Protected, group: GroupLayout, old: int) -> bool:
    """The links of a group lead from the row's own pages to CACHED ones under the same keys."""
    links = event.rebinds[event.rebinds[:, 0] == group.idx]
    if not len(links):
        return True
    if len(links) < len(event.rebinds) and len(ledger.spaces) < len(ledger.tables):
        return False
    table_idx, own, canonical = links[:, 1].copy(), links[:, 2].copy(), links[:, 3].copy()
    at, keys, num = table_idx - old // group.page_size, event.keys[group.idx], len(links)
    if at.min() < 0 or at.max() >= len(keys) or not distinct(table_idx) or not distinct(own):
        return False
    here = ledger.tables[group.idx].take(table_idx + event.row * group.table_width)
    space, wanted = ledger.spaces[group.space_idx], keys.take(at)
    return (
        here.tobytes() == own.tobytes()
        and space.refs.take(own).min() >= 1
        and space.state.take(canonical).tobytes() == CACHED * num
        and space.group.take(canonical).tobytes() == bytes((group.idx,)) * num
        and space.key.take(canonical).tobytes() == wanted.tobytes()
        and bool(wanted.all())
    )


def _prefix_may_move(ledger: Ledger, row: int) -> bool:
    session_id = ledger.rows.session[row]
    if session_id is None:
        return True
    session = ledger.sessions.get(session_id)
    return session is not None and session.num_turns < 1


def released(ledger: Ledger, event: Released, change: Change) -> bool:
    """The request is there and owns no pin, and its row lets go of all it has."""
    if _owns_pins(ledger, event.rid):
        return False
    row = event.row
    if row is None:
        return _waiting_released(ledger, event)
    if event.host_pages.size or not _holds(ledger, event.rid, row):
        return False
    if event.reason == "finished" and ledger.rows.committed[row] < ledger.rows.prompt_len[row]:
        return False
    return event.rid not in ledger.waiting and _row_goes(ledger, row, event.pages, change)


def _waiting_released(ledger: Ledger, event: Released) -> bool:
    waiting = ledger.waiting.get(event.rid)
    if waiting is None or event.rid in ledger.requests or event.reason == "finished":
        return False
    backup = b"" if waiting.backup is None else waiting.backup.tobytes()
    if event.host_pages.tobytes() != backup or not _gives_back(ledger, event.host_pages):
        return False
    return not any(map(len, event.pages))


def _holds(ledger: Ledger, rid: str, row: int) -> bool:
    return ledger.requests.get(rid) == row and ledger.rows.state[row] == ROW_HELD


def _owns_pins(ledger: Ledger, rid: str) -> bool:
    return bool(ledger.pins) and any(pin.owner == rid for pin in ledger.pins.values())


def _row_goes(ledger: Ledger, row: int, pages: PageLists, change: Change) -> bool:
    """A whole row: it lets go of all it has, or of nothing while steps in flight read it."""
    if ledger.rows.in_flight[row] > 0:
        return not any(map(len, pages))
    return lets_go_exactly(ledger, change)


def retracted(ledger: Ledger, event: Retracted, change: Change) -> bool:
    """The request is there and owns no pin, its row lets go, its backup is on FREE host pages."""
    if not _holds(ledger, event.rid, event.row) or _owns_pins(ledger, event.rid):
        return False
    return _backs_up(ledger, change) and _row_goes(ledger, event.row, event.pages, change)


def _backs_up(ledger: Ledger, change: Change) -> bool:
    """Whether a backup has as many FREE host pages as it has pages to keep, each once."""
    saved, host = change.saved, ledger.host
    if saved is None or host is None:
        return True
    pages, num = saved.host_pages, len(saved.host_pages)
    if num != len(saved.pages):
        return False
    if host.free.is_head(pages):
        return True
    return host.state.take(pages).tobytes() == bytes(num) and distinct(pages)


def saved(ledger: Ledger, event: SessionSaved, change: Change) -> bool:
    """The row is the request's, and the session's if it had one; what is kept is committed."""
    rows, row, kept = ledger.rows, event.row, event.kept_len
    if not _holds(ledger, event.rid, row) or rows.rid[row] != event.rid:
        return False
    session = ledger.sessions.get(event.session_id)
    if session is None:
        if rows.session[row] not in (None, event.session_id):
            return False
    elif session.row != row or session.rid != event.rid or rows.session[row] != event.session_id:
        return False
    return rows.committed[row] == kept and _trims(ledger, row, kept, change)


def restored(ledger: Ledger, event: SessionRestored, change: Change) -> bool:
    """The row is the idle session's; what is kept is committed, whole pages where it rewinds."""
    rows, row, kept = ledger.rows, event.row, event.kept_len
    session = ledger.sessions.get(event.session_id)
    if session is None or session.row != row or session.rid is not None:
        return False
    if rows.session[row] != event.session_id or rows.rid[row] is not None:
        return False
    if rows.state[row] != ROW_HELD:
        return False
    if event.rid in ledger.requests or event.rid in ledger.waiting:
        return False
    if kept > rows.committed[row] or (kept < rows.protected[row] and kept % ledger.layout.align):
        return False
    return _trims(ledger, row, kept, change)


def _trims(ledger: Ledger, row: int, kept: int, change: Change) -> bool:
    rows = ledger.rows
    if not 0 <= kept <= rows.allocated[row] or kept > ledger.layout.capacity:
        return False
    protected_len = rows.protected[row] if change.protected is None else change.protected
    if protected_len > kept:
        return False
    for idx, group in enumerate(ledger.layout.window_groups):
        bound = transitions.cursor_bound(kept, group.window or 0, group.page_size)
        if rows.cursors[idx, row] > bound:
            return False
    return lets_go_exactly(ledger, change)


def closed(ledger: Ledger, event: SessionClosed, change: Change) -> bool:
    """The session is idle and its row lets go of all it has, or it is in a turn and keeps all."""
    session = ledger.sessions.get(event.session_id)
    if session is None:
        return False
    row = event.row
    if row is None:
        return session.rid is not None and not any(map(len, event.pages))
    if session.row != row or session.rid is not None or ledger.rows.rid[row] is not None:
        return False
    if ledger.rows.session[row] != event.session_id:
        return False
    held = bool(ledger.rows.state[row] == ROW_HELD)
    return held and _row_goes(ledger, row, event.pages, change)
