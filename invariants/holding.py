"""Guards over who holds what: rows, requests and sessions, and releases that come once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Protected,
    Released,
    Resumed,
    Retracted,
    RolledBack,
    SessionClosed,
    SessionRestored,
    SessionSaved,
    StepDispatched,
    WindowEvicted,
)
from kvlife.invariants.effect import holder_of, holders
from kvlife.invariants.finding import MAX_NAMED, Evidence, naming
from kvlife.ledger import RowState

if TYPE_CHECKING:
    from kvlife.invariants.effect import Effect


def row_single_holder(effect: Effect) -> Evidence | None:
    """One holder a row, one row a holder; work is done on rows in use only."""
    match effect.event:
        case Admitted() | Resumed():
            return _bound_anew(effect, effect.event)
        case SessionSaved():
            return _saved(effect, effect.event)
        case SessionRestored():
            return _restored(effect, effect.event)
        case Retracted():
            row = effect.ledger.requests.get(effect.event.rid)
            if row is None or row == effect.event.row:
                return None
            return _blame(effect, "the request has another row", rid=effect.event.rid, its_row=row)
        case Allocated() | Committed() | Protected() | RolledBack() | WindowEvicted():
            return _not_held(effect)
        case StepDispatched():
            return _not_held(effect) or _without_request(effect)
        case _:
            return None


def _blame(effect: Effect, why: str, **more: object) -> Evidence:
    rows = naming(rows=effect.rows)
    last = [int(effect.ledger.rows.last_event[row]) for row in effect.rows[:MAX_NAMED]]
    held = holders(effect.ledger, effect.rows)
    return {"why": why} | rows | {"holders": held, "last_events": last} | more


def _bound_anew(effect: Effect, event: Admitted | Resumed) -> Evidence | None:
    ledger, row = effect.ledger, event.row
    # Row 0 is nobody's to bind: reserved-untouched says so.
    if row != 0 and ledger.rows.state[row] != RowState.FREE:
        return _blame(effect, "the row is in use", rid=event.rid)
    if event.rid in ledger.requests:
        has = ledger.requests[event.rid]
        return _blame(effect, "the request has a row", rid=event.rid, its_row=has)
    waits = event.rid in ledger.waiting
    if isinstance(event, Admitted) and waits:
        return _blame(effect, "the request waits to be resumed", rid=event.rid)
    if isinstance(event, Resumed) and not waits:
        return _blame(effect, "no request waits under this id", rid=event.rid)
    return None


def _saved(effect: Effect, event: SessionSaved) -> Evidence | None:
    ledger, row = effect.ledger, event.row
    named = {"rid": event.rid, "session": event.session_id}
    if ledger.requests.get(event.rid) != row or ledger.rows.rid[row] != event.rid:
        return _blame(effect, "the row is not the request's", **named)
    if ledger.rows.state[row] != RowState.HELD:
        return _blame(effect, "the row is not held", **named)
    session = ledger.sessions.get(event.session_id)
    if session is not None and session.row != row:
        return _blame(effect, "the session has another row", its_row=session.row, **named)
    if ledger.rows.session[row] not in (None, event.session_id):
        return _blame(effect, "the row belongs to another session", **named)
    if session is not None and session.rid != event.rid:
        return _blame(effect, "the session is not in a turn of this request", **named)
    return None


def _restored(effect: Effect, event: SessionRestored) -> Evidence | None:
    ledger, row = effect.ledger, event.row
    named = {"rid": event.rid, "session": event.session_id}
    session = ledger.sessions.get(event.session_id)
    if session is None:
        return _blame(effect, "no session has this id", **named)
    if session.row != row or ledger.rows.session[row] != event.session_id:
        return _blame(effect, "the session has another row", its_row=session.row, **named)
    if ledger.rows.state[row] != RowState.HELD:
        return _blame(effect, "the row is not held", **named)
    if session.rid is not None or ledger.rows.rid[row] is not None:
        return _blame(effect, "the session is in a turn", turn_of=session.rid, **named)
    if event.rid in ledger.requests or event.rid in ledger.waiting:
        return _blame(effect, "the request is in use elsewhere", **named)
    return None


def _not_held(effect: Effect) -> Evidence | None:
    loose = effect.rows[effect.ledger.rows.state[effect.rows] != RowState.HELD]
    if not loose.size:
        return None
    found = naming(rows=loose, last_events=effect.ledger.rows.last_event[loose])
    return {"why": "the row is not held"} | found | {"holders": holders(effect.ledger, loose)}


def _without_request(effect: Effect) -> Evidence | None:
    idle = [row for row in effect.rows.tolist() if effect.ledger.rows.rid[row] is None]
    if not idle:
        return None
    held = holders(effect.ledger, idle)
    return {"why": "the row runs no request"} | naming(rows=idle) | {"holders": held}


def release_once(effect: Effect) -> Evidence | None:
    """A release names a request or session that is there, on the row that it has."""
    ledger, event = effect.ledger, effect.event
    match event:
        case Released():
            row = ledger.requests.get(event.rid)
            if row is None and event.rid in ledger.waiting:
                if event.row is None:
                    return None
                return _blame(effect, "the request waits, without a row", rid=event.rid)
            if row is None:
                return _blame(effect, "no such request is held", rid=event.rid)
            if row != event.row:
                return _blame(effect, "the request has another row", rid=event.rid, its_row=row)
            return _unheld(effect, row)
        case Retracted():
            if event.rid not in ledger.requests:
                waits = event.rid in ledger.waiting
                why = "the request waits already" if waits else "no such request is held"
                return _blame(effect, why, rid=event.rid)
            return _unheld(effect, event.row)
        case SessionClosed():
            return _closed(effect, event)
        case _:
            return None


def _unheld(effect: Effect, row: int) -> Evidence | None:
    if effect.ledger.rows.state[row] == RowState.HELD:
        return None
    return _blame(effect, "the row is not held")


def _closed(effect: Effect, event: SessionClosed) -> Evidence | None:
    ledger = effect.ledger
    session = ledger.sessions.get(event.session_id)
    if session is None:
        return _blame(effect, "no session has this id", session=event.session_id)
    if event.row is None:
        return None
    if session.row != event.row or ledger.rows.session[event.row] != event.session_id:
        return _blame(
            effect, "the session has another row", session=event.session_id, its_row=session.row
        )
    if session.rid is not None or ledger.rows.rid[event.row] is not None:
        holder = holder_of(ledger, event.row)
        return _blame(effect, "the session is in a turn", session=event.session_id, holder=holder)
    return _unheld(effect, event.row)
