"""Faults in who holds a row: bound twice, saved or resumed by another, used after its end."""

from __future__ import annotations

import attrs

from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Resumed,
    SessionRestored,
    SessionSaved,
    StepDispatched,
)
from kvlife.events.arrays import ints
from kvlife.ledger import RowState
from kvlife.testing.faults.fault import Faults, Injection, Kind
from kvlife.testing.faults.spot import Spot

FAULTS = Faults()
_STREAM, _DECISION = Kind.STREAM, Kind.DECISION
_FIRES = "row-single-holder"


@FAULTS.at("row-handed-out-twice", _DECISION, _FIRES, Admitted, Resumed)
def _row_handed_out_twice(spot: Spot) -> Injection | None:
    """A request is bound to a row that another one holds."""
    row = spot.one(spot.rows(RowState.HELD))
    if row is None:
        return None
    return Injection(events=(attrs.evolve(spot.event, row=row),), invariant=_FIRES)


@FAULTS.at("row-handed-out-while-it-drains", _DECISION, _FIRES, Admitted, Resumed)
def _row_handed_out_while_it_drains(spot: Spot) -> Injection | None:
    """A request is bound to a row that a step in flight still reads."""
    row = spot.one(spot.rows(RowState.DRAINING))
    if row is None:
        return None
    return Injection(events=(attrs.evolve(spot.event, row=row),), invariant=_FIRES)


@FAULTS.at("row-0-bound", _DECISION, "reserved-untouched", Admitted, Resumed)
def _row_0_bound(spot: Spot) -> Injection:
    """A request is bound to the row of padded writes."""
    return Injection(events=(attrs.evolve(spot.event, row=0),), invariant="reserved-untouched")


@FAULTS.at("admission-doubled", _STREAM, _FIRES, Admitted)
def _admission_doubled(spot: Spot) -> Injection | None:
    """A request is admitted twice, to two rows."""
    row = spot.one(row for row in spot.rows(RowState.FREE) if row != spot.event.row)
    if row is None:
        return None
    again = attrs.evolve(spot.event, row=row)
    return Injection(events=(spot.event, again), invariant=_FIRES)


@FAULTS.at("admitted-while-it-waits", _DECISION, _FIRES, Resumed)
def _admitted_while_it_waits(spot: Spot) -> Injection:
    """A request that was retracted is admitted as a new one."""
    event = spot.event
    wrong = Admitted(
        event.rid,
        event.row,
        event.namespace,
        event.prompt_len,
        event.prefix_len,
        event.evict_floor,
        event.evicted_len,
        event.pages,
    )
    return Injection(events=(wrong,), invariant=_FIRES)


@FAULTS.at("resumed-and-never-retracted", _STREAM, _FIRES, Resumed)
def _resumed_and_never_retracted(spot: Spot) -> Injection | None:
    """A request is resumed that was never admitted."""
    if spot.event.restored_len > spot.event.prefix_len:
        return None
    wrong = attrs.evolve(spot.event, rid=spot.event.rid + "'")
    return Injection(events=(wrong,), invariant=_FIRES)


@FAULTS.at("session-saved-by-another", _STREAM, _FIRES, SessionSaved)
def _session_saved_by_another(spot: Spot) -> Injection | None:
    """A session's row is saved in the name of a request that runs elsewhere."""
    rid = spot.one(rid for rid in spot.ledger.requests if rid != spot.event.rid)
    if rid is None:
        return None
    return Injection(events=(attrs.evolve(spot.event, rid=rid),), invariant=_FIRES)


@FAULTS.at("session-restored-twice", _STREAM, _FIRES, SessionRestored)
def _session_restored_twice(spot: Spot) -> Injection:
    """Two requests run a turn of one session at once."""
    again = attrs.evolve(spot.event, rid=spot.event.rid + "'", pages=spot.ledger.no_pages)
    return Injection(events=(spot.event, again), invariant=_FIRES)


@FAULTS.at("session-restored-on-another-row", _DECISION, _FIRES, SessionRestored)
def _session_restored_on_another_row(spot: Spot) -> Injection | None:
    """A session's turn is given the row of a request."""
    long = spot.ledger.rows.committed
    row = spot.one(
        row for row in spot.ledger.requests.values() if long[row] == spot.ledger.rows.allocated[row]
    )
    if row is None:
        return None
    wrong = attrs.evolve(spot.event, row=row, kept_len=int(long[row]), pages=spot.ledger.no_pages)
    return Injection(events=(wrong,), invariant=_FIRES)


@FAULTS.at("allocated-for-a-free-row", _STREAM, _FIRES, Allocated)
def _allocated_for_a_free_row(spot: Spot) -> Injection | None:
    """A batch that is out of date allocates for a row whose request is gone."""
    row = spot.one(spot.rows(RowState.FREE))
    pages = [spot.free(group, 1) for group in spot.layout.groups]
    if row is None or None in pages or spot.shares_spaces:
        return None
    wrong = Allocated(ints([row]), ints([1]), tuple(ints(some or ()) for some in pages))
    return Injection(events=(wrong,), invariant=_FIRES)


@FAULTS.at("dispatched-with-a-free-row", _STREAM, _FIRES, StepDispatched)
def _dispatched_with_a_free_row(spot: Spot) -> Injection | None:
    """A batch that is out of date runs a row whose request is gone."""
    row = spot.one(spot.rows(RowState.FREE))
    if row is None:
        return None
    rows = ints([*spot.event.rows.tolist(), row])
    return Injection(events=(attrs.evolve(spot.event, rows=rows),), invariant=_FIRES)


@FAULTS.at("dispatched-with-an-idle-session", _DECISION, _FIRES, StepDispatched)
def _dispatched_with_an_idle_session(spot: Spot) -> Injection | None:
    """A step runs the row of a session that is in no turn."""
    row = spot.one(session.row for session in spot.ledger.sessions.values() if session.rid is None)
    if row is None:
        return None
    rows = ints([*spot.event.rows.tolist(), row])
    return Injection(events=(attrs.evolve(spot.event, rows=rows),), invariant=_FIRES)


@FAULTS.at("committed-for-a-free-row", _STREAM, _FIRES, Committed)
def _committed_for_a_free_row(spot: Spot) -> Injection | None:
    """A result is booked for a row whose request is gone."""
    row = spot.one(spot.rows(RowState.FREE))
    if row is None:
        return None
    rows = ints([*spot.event.rows.tolist(), row])
    lens = ints([*spot.event.committed_len.tolist(), 0])
    return Injection(events=(Committed(rows, lens),), invariant=_FIRES)
