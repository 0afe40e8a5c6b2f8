"""Guards over the ladder of lengths: 0 <= protected <= committed <= allocated <= row capacity.

Two lengths that an event leaves out of order count against it where they are further out of order
than before it; what an earlier event has broken is not charged again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvlife.events import (
    Admitted,
    Committed,
    Protected,
    Released,
    Resumed,
    RolledBack,
    SessionRestored,
    SessionSaved,
    WindowEvicted,
)
from kvlife.invariants.effect import holders
from kvlife.invariants.finding import Evidence, naming

if TYPE_CHECKING:
    from kvlife.invariants.effect import Effect, Ladder

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def ladder_order(effect: Effect) -> Evidence | None:
    """0 <= protected <= committed <= allocated <= row capacity; floors and cursors not negative."""
    gaps = _gaps(effect, effect.after)
    before = np.zeros_like(gaps) if effect.binds else np.maximum(_gaps(effect, effect.before), 0)
    broken = (gaps > before).any(axis=0) | _kept_beyond_allocated(effect)
    if isinstance(effect.event, Admitted | Resumed):
        broken |= effect.event.prompt_len < 0
    if not broken.any():
        return None
    return _lengths(effect, broken, capacity=effect.ledger.layout.capacity)


def _gaps(effect: Effect, ladder: Ladder) -> I64:
    """[pairs, rows]: by how much the lower of two lengths stands above the higher one."""
    layout = effect.ledger.layout
    top = ladder.allocated if layout.scheduled else ladder.committed
    gaps = [
        -ladder.protected,
        ladder.protected - top,
        -ladder.committed,
        ladder.committed - ladder.allocated,
        ladder.allocated - layout.capacity,
        -ladder.floor,
        *(-cursor for cursor in ladder.cursors),
    ]
    return np.stack(gaps)


def _kept_beyond_allocated(effect: Effect) -> Bools:
    """A session that keeps more than was ever allocated: the trim would make it look right."""
    if isinstance(effect.event, SessionSaved | SessionRestored):
        return effect.before.allocated < effect.event.kept_len
    return np.zeros(len(effect.rows), np.bool_)


def protected_aligned(effect: Effect) -> Evidence | None:
    """What is published is a whole number of pages of every group."""
    if effect.change.protected is None:
        return None
    broken = effect.after.protected % effect.ledger.layout.align != 0
    if not broken.any():
        return None
    return _lengths(effect, broken, align=effect.ledger.layout.align)


def protected_monotone(effect: Effect) -> Evidence | None:
    """What is published stays so; only a rewind of a session, and a new binding, start lower."""
    if not isinstance(effect.event, Protected):
        return None
    broken = effect.after.protected < effect.before.protected
    return _lengths(effect, broken) if broken.any() else None


def settled_bound(effect: Effect) -> Evidence | None:
    """Nothing is confirmed, published, saved or finished beyond what results have confirmed."""
    event, old = effect.event, effect.before
    match event:
        case Committed():
            bound = np.minimum(old.settled, old.allocated)
            broken = (effect.after.committed > bound) | (effect.after.committed < old.committed)
        case RolledBack():
            broken = effect.after.committed > old.committed
        case Protected():
            if effect.ledger.layout.scheduled:
                return None
            broken = effect.after.protected > old.committed
        case SessionSaved():
            broken = old.committed != event.kept_len
        case SessionRestored():
            broken = old.committed < event.kept_len
        case Resumed():
            return _restored_beyond_backup(effect, event)
        case Released():
            return _finished_early(effect, event)
        case _:
            return None
    return _lengths(effect, broken) if broken.any() else None


def _restored_beyond_backup(effect: Effect, event: Resumed) -> Evidence | None:
    waiting = effect.ledger.waiting.get(event.rid)
    backed_up = 0 if waiting is None or waiting.backup is None else waiting.committed_len
    if event.restored_len <= max(event.prefix_len, backed_up):
        return None
    return {
        "rid": event.rid,
        "restored_len": event.restored_len,
        "prefix_len": event.prefix_len,
        "backed_up_len": backed_up,
    }


def _finished_early(effect: Effect, event: Released) -> Evidence | None:
    if event.reason != "finished":
        return None
    ledger = effect.ledger
    waiting = ledger.waiting.get(event.rid)
    if event.row is not None and ledger.requests.get(event.rid) == event.row:
        committed, prompt = ledger.rows.committed[event.row], ledger.rows.prompt_len[event.row]
    elif event.row is None and waiting is not None:
        committed, prompt = waiting.committed_len, waiting.prompt_len
    else:
        return None
    if committed >= prompt:
        return None
    return {"rid": event.rid, "committed_len": int(committed), "prompt_len": int(prompt)}


def session_prefix_fixed(effect: Effect) -> Evidence | None:
    """After a session's first turn its published prefix stays as it is."""
    event, ledger = effect.event, effect.ledger
    if not isinstance(event, Protected):
        return None
    session_id = ledger.rows.session[event.row]
    session = None if session_id is None else ledger.sessions.get(session_id)
    if session is None or session.num_turns < 1:
        return None
    old = int(effect.before.protected[0])
    if old == event.protected_len:
        return None
    return {
        "session": session_id,
        "turns": session.num_turns,
        "protected_len": event.protected_len,
        "protected_before": old,
        "saved_at": session.seq,
    }


def _lengths(effect: Effect, broken: Bools, **more: object) -> Evidence:
    """The rows that break a rule, with their lengths before and after."""
    old, new = effect.before, effect.after
    columns: dict[str, npt.ArrayLike] = {
        "rows": effect.rows[broken],
        "protected": new.protected[broken],
        "committed": new.committed[broken],
        "allocated": new.allocated[broken],
        "protected_before": old.protected[broken],
        "committed_before": old.committed[broken],
        "allocated_before": old.allocated[broken],
    }
    event = effect.event
    if isinstance(event, Committed):
        columns["settled"] = old.settled[broken]
    if isinstance(event, WindowEvicted) or effect.binds:
        for idx, cursor in enumerate(new.cursors):
            columns[f"cursor_{idx}"] = cursor[broken]
        columns["floor"] = new.floor[broken]
    if isinstance(event, SessionSaved | SessionRestored):
        more["kept_len"] = event.kept_len
    found = naming(**columns)
    return found | {"holders": holders(effect.ledger, effect.rows[broken])} | more
