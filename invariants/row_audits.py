"""Audits of the rows: lengths, holders, steps in flight and cursors of the whole state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvlife.invariants.covering import unwritable
from kvlife.invariants.effect import holders
from kvlife.invariants.finding import MAX_NAMED, Evidence, naming
from kvlife.ledger import RowState

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvlife.invariants.census import Census, Index


def _rows(census: Census, rows: Index, **columns: npt.ArrayLike) -> Evidence | None:
    if not rows.size:
        return None
    last = census.ledger.rows.last_event[rows]
    found = naming(rows=rows, **columns, last_events=last)
    return found | {"holders": holders(census.ledger, rows)}


def audit_ladder(census: Census) -> Evidence | None:
    """Every row in use has its lengths in order."""
    rows, live = census.ledger.rows, census.live
    protected, committed = rows.protected[live], rows.committed[live]
    allocated = rows.allocated[live]
    top = allocated if census.ledger.layout.scheduled else committed
    broken = (protected < 0) | (protected > top) | (committed < 0) | (committed > allocated)
    broken |= (allocated > census.ledger.layout.capacity) | (rows.floor[live] < 0)
    bad = live[broken]
    return _rows(
        census,
        bad,
        protected=rows.protected[bad],
        committed=rows.committed[bad],
        allocated=rows.allocated[bad],
    )


def audit_aligned(census: Census) -> Evidence | None:
    """Every published length is a whole number of pages."""
    protected = census.ledger.rows.protected
    bad = census.live[protected[census.live] % census.ledger.layout.align != 0]
    return _rows(census, bad, protected=protected[bad])


def audit_settled(census: Census) -> Evidence | None:
    """No row is committed beyond what steps have settled."""
    rows = census.ledger.rows
    bad = census.live[rows.committed[census.live] > rows.settled[census.live]]
    return _rows(census, bad, committed=rows.committed[bad], settled=rows.settled[bad])


def audit_holders(census: Census) -> Evidence | None:
    """Requests and sessions have the rows that name them, and no row is without a holder."""
    ledger = census.ledger
    rids, sessions = ledger.rows.rid, ledger.rows.session
    held = set(census.held.tolist())
    for rid, row in ledger.requests.items():
        if row not in held or rids[row] != rid:
            return {"why": "the request's row is not its own", "rid": rid, "rows": [row]}
    for session_id, session in ledger.sessions.items():
        row = session.row
        if row not in held or sessions[row] != session_id or rids[row] != session.rid:
            return {"why": "the session's row is not its own", "session": session_id, "rows": [row]}
    both = ledger.requests.keys() & ledger.waiting.keys()
    if both:
        return {"why": "the request has a row and waits", "rids": sorted(both)[:MAX_NAMED]}
    lost = [
        row
        for row in sorted(held)
        if ledger.requests.get(rids[row] or "") != row
        and (sessions[row] or "") not in ledger.sessions
    ]
    return _rows(census, np.array(lost, np.intp))


def audit_write_exclusive(census: Census) -> Evidence | None:
    """What rows may still write lies on pages that they alone have."""
    return unwritable(census.ledger, census.held)


def audit_fence(census: Census) -> Evidence | None:
    """Each row counts the open steps that name it, and a DRAINING one is named by some."""
    ledger = census.ledger
    count = np.zeros(ledger.layout.num_rows, np.int64)
    for opened in ledger.steps.values():
        np.add.at(count, opened.rows, 1)
    draining = ledger.rows.state == RowState.DRAINING
    bad = np.flatnonzero((ledger.rows.in_flight != count) | (draining & (count == 0)))
    return _rows(census, bad, in_flight=ledger.rows.in_flight[bad], open_steps=count[bad])


def audit_cursors(census: Census) -> Evidence | None:
    """Cursors are whole pages and stand inside the allocated length."""
    ledger = census.ledger
    for group in ledger.layout.window_groups:
        cursor = ledger.rows.cursors[group.window_idx or 0][census.live]
        end = ledger.rows.allocated[census.live] // group.page_size * group.page_size
        broken = (cursor < 0) | (cursor % group.page_size != 0) | (cursor > np.maximum(end, 0))
        if broken.any():
            bad = census.live[broken]
            found = _rows(census, bad, cursor=cursor[broken], allocated=ledger.rows.allocated[bad])
            return {"group": group.name, **(found or {})}
    return None


def audit_row_conservation(census: Census) -> Evidence | None:
    """FREE, HELD and DRAINING rows are all the rows; row 0 is reserved; a FREE row is empty."""
    rows = census.ledger.rows
    known = rows.state <= RowState.DRAINING
    known[0] = rows.state[0] == RowState.RESERVED
    empty = (rows.allocated == 0) & (rows.committed == 0) & (rows.in_flight == 0)
    bad = np.flatnonzero(~known | ((rows.state == RowState.FREE) & ~empty))
    return _rows(census, bad, state=rows.state[bad], allocated=rows.allocated[bad])
