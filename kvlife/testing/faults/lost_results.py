"""Faults of results and publications that are lost: found where a later event goes beyond them."""

from __future__ import annotations

import numpy as np

from kvlife.events import (
    Admitted,
    Committed,
    Event,
    Evicted,
    Protected,
    Released,
    Resumed,
    Retracted,
    RolledBack,
    SessionClosed,
    SessionSaved,
    WindowEvicted,
)
from kvlife.ledger import Ledger, PageState
from kvlife.testing.faults.fault import HEALED, Faults, Injection, Kind, When
from kvlife.testing.faults.spot import Spot, unlike_backup

FAULTS = Faults()
_STREAM, _LATER = Kind.STREAM, When.LATER


@FAULTS.at(
    "commit-lost",
    _STREAM,
    ("ladder-order", "settled-bound", "window-cursor", "allocated-covers-pages"),
    Committed,
    when=_LATER,
)
def _commit_lost(spot: Spot) -> Injection | None:
    """A result is never booked: what is published, saved or finished was not committed."""
    grown = spot.event.committed_len > spot.ledger.rows.committed[spot.event.rows]
    behind = set(spot.event.rows[grown].tolist())
    kept_short: set[str] = set()
    if not behind or spot.layout.scheduled:
        return None

    def later(ledger: Ledger, event: Event) -> str | None:
        if not behind and not kept_short:
            return HEALED
        if isinstance(event, Retracted | Resumed):
            return _kept_short(ledger, event, behind, kept_short)
        committed = ledger.rows.committed
        match event:
            case Committed():
                behind.difference_update(event.rows.tolist())
            case RolledBack():
                forward = event.committed_len > committed[event.rows]
                return "settled-bound" if forward.any() else None
            case Protected() if event.row in behind:
                return "ladder-order" if event.protected_len > committed[event.row] else None
            case SessionSaved() if event.row in behind:
                return "settled-bound"
            case Released() if event.row in behind:
                behind.discard(event.row)
                short = committed[event.row] < ledger.rows.prompt_len[event.row]
                return "settled-bound" if short and event.reason == "finished" else None
            case SessionClosed():
                behind.discard(event.row or 0)
            case WindowEvicted():
                group = ledger.layout.groups[event.group]
                end = committed[event.rows].astype(np.int64) - (group.window or 1) + 1
                far = event.evicted_len > np.maximum(end, 0) // group.page_size * group.page_size
                return "window-cursor" if far.any() else None
            case _:
                pass
        return None

    return Injection(later=later)


def _kept_short(
    ledger: Ledger, event: Retracted | Resumed, behind: set[int], waiting: set[str]
) -> str | None:
    """A backup of what was committed is larger than what the ledger knows of, or comes back so."""
    if isinstance(event, Retracted):
        if event.row in behind and event.backup is not None:
            waiting.add(event.rid)
        behind.discard(event.row)
        return "allocated-covers-pages" if unlike_backup(ledger, event) else None
    if event.rid not in waiting:
        return None
    waiting.discard(event.rid)
    kept_len = max(event.prefix_len, ledger.waiting[event.rid].committed_len)
    return "settled-bound" if event.restored_len > kept_len else None


@FAULTS.at(
    "publish-lost",
    _STREAM,
    ("allocated-covers-pages", "page-double-free", "evicted-while-locked", "index-agrees"),
    Protected,
    when=_LATER,
)
def _publish_lost(spot: Spot) -> Injection | None:
    """A publish is never told: its pages are hit, or evicted, and were never in the cache."""
    event = spot.event
    if spot.layout.window_groups or event.rebinds.size:
        return None
    row = event.row
    low = int(spot.ledger.rows.protected[row]) // spot.base.page_size
    table = spot.ledger.pages_of(row, spot.base.idx)
    pages = set(table[low : low + len(event.keys[spot.layout.base])].tolist())
    # Turns of a session change the row's holder, and not what is in it.
    kept = True

    def later(ledger: Ledger, other: Event) -> str | None:
        nonlocal kept
        base = ledger.layout.base
        state = ledger.spaces[ledger.layout.groups[base].space_idx].state
        match other:
            case Admitted() | Resumed():
                missed = pages & set(other.pages[base].tolist())
                return "allocated-covers-pages" if missed else None
            case Evicted():
                missed = pages & set(other.pages[base].tolist())
                free = any(state[page] == PageState.FREE for page in missed)
                return ("page-double-free" if free else "evicted-while-locked") if missed else None
            case Protected():
                # The row itself goes on from what it has not published: its keys are too few, and
                # its rebinds stand at other entries.
                again = kept and other.row == row
                missed = pages & set(other.rebinds[:, 3].tolist())
                if missed or (again and other.rebinds.size):
                    return "allocated-covers-pages"
                return "index-agrees" if again else None
            case Retracted() if kept and other.row == row:
                # What was not published is still the row's alone, and should be kept with it.
                kept = False
                return "allocated-covers-pages" if unlike_backup(ledger, other) else None
            case Released() | SessionClosed() if other.row == row:
                kept = False
                return None
            case _:
                return None

    return Injection(later=later)
