"""Faults of events that are lost: found at the first event that the loss makes wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Event,
    Evicted,
    Marked,
    Protected,
    Released,
    Resumed,
    Retracted,
    RolledBack,
    SessionClosed,
    SessionRestored,
    SessionSaved,
    StepDispatched,
    StepSettled,
    WindowEvicted,
)
from kvlife.ledger import Ledger, PageState, RowState, derive
from kvlife.ledger.spans import num_at
from kvlife.testing.faults.fault import Faults, Injection, Kind, Later, When
from kvlife.testing.faults.spot import Spot, unlike_backup

FAULTS = Faults()
_STREAM, _LATER = Kind.STREAM, When.LATER
# Events that let pages go, and name them.
LETS_GO = (RolledBack, Released, Retracted, SessionSaved, SessionClosed, StepSettled, WindowEvicted)
_HELD_ON = ("row-single-holder", "page-double-alloc", "idle-no-leak")


def _pages_by_space(spot: Spot, lists: tuple[Any, ...]) -> dict[int, set[int]]:
    # Any: arrays of pages.
    found: dict[int, set[int]] = {}
    for group, pages in zip(spot.layout.groups, lists, strict=True):
        found.setdefault(group.space_idx, set()).update(map(int, pages))
    return found


def _takes(ledger: Ledger, event: Event, pages: dict[int, set[int]]) -> bool:
    """Whether an event takes one of these pages as FREE, which it is not."""
    lists = event.restored if isinstance(event, Resumed) else ()
    lists = event.pages if isinstance(event, Allocated) else lists
    owned = (PageState.PRIVATE, PageState.CACHED)
    return any(
        page in pages[group.space_idx] and ledger.spaces[group.space_idx].state[page] in owned
        for group, taken in zip(ledger.layout.groups, lists, strict=False)
        for page in taken.tolist()
    )


def _still_held(row: int, rid: str | None, pages: dict[int, set[int]]) -> Later:
    """A row that was never let go: it is bound again, its pages are taken, or all is to be idle."""

    def later(ledger: Ledger, event: Event) -> str | None:
        if isinstance(event, Resumed) and event.rid == rid:
            # A lost retraction has left no backup from which anything could be restored.
            restores = event.restored_len > event.prefix_len
            return "settled-bound" if restores else "row-single-holder"
        if isinstance(event, Admitted | Resumed) and (
            event.row == row or (event.rid == rid and isinstance(event, Resumed))
        ):
            return "row-single-holder"
        if isinstance(event, Released) and event.rid == rid:
            return "release-once"
        if _takes(ledger, event, pages):
            return "page-double-alloc"
        if isinstance(event, Marked) and event.idle:
            return "idle-no-leak"
        return _evicts_locked(ledger, event, pages)

    return later


def _evicts_locked(ledger: Ledger, event: Event, pages: dict[int, set[int]]) -> str | None:
    """A cached page that the row still references is evicted, as its last reader was this row."""
    if not isinstance(event, Evicted):
        return None
    for group, gone in zip(ledger.layout.groups, event.pages, strict=True):
        space = ledger.spaces[group.space_idx]
        hit = [page for page in gone.tolist() if page in pages[group.space_idx]]
        if (space.refs[hit] > 0).any():
            return "evicted-while-locked"
    return None


@FAULTS.at("release-lost", _STREAM, (*_HELD_ON, "evicted-while-locked"), Released, when=_LATER)
def _release_lost(spot: Spot) -> Injection | None:
    """A release is never told: its row is bound again, its pages are taken or evicted."""
    event, rows = spot.event, spot.ledger.rows
    if event.row is None or rows.in_flight[event.row]:
        return None
    return Injection(later=_still_held(event.row, event.rid, _pages_by_space(spot, event.pages)))


@FAULTS.at(
    "session-close-lost",
    _STREAM,
    (*_HELD_ON, "evicted-while-locked"),
    SessionClosed,
    when=_LATER,
)
def _session_close_lost(spot: Spot) -> Injection | None:
    """The end of a session is never told: its row is bound again, or its pages are taken."""
    event, rows = spot.event, spot.ledger.rows
    if event.row is None or rows.in_flight[event.row]:
        return None
    return Injection(later=_still_held(event.row, None, _pages_by_space(spot, event.pages)))


@FAULTS.at(
    "retraction-lost",
    _STREAM,
    (
        "row-single-holder",
        "page-double-alloc",
        "evicted-while-locked",
        "release-once",
        "settled-bound",
    ),
    Retracted,
    when=_LATER,
)
def _retraction_lost(spot: Spot) -> Injection | None:
    """A retraction is never told: the request resumes while it has a row."""
    event, rows = spot.event, spot.ledger.rows
    if rows.in_flight[event.row]:
        return None
    return Injection(later=_still_held(event.row, event.rid, _pages_by_space(spot, event.pages)))


@FAULTS.at("eviction-lost", _STREAM, ("page-double-alloc", "index-agrees"), Evicted, when=_LATER)
def _eviction_lost(spot: Spot) -> Injection:
    """An eviction is never told: its pages are taken while they are cached."""
    pages = _pages_by_space(spot, spot.event.pages)
    keys = [
        {int(spot.space(group).key[page]) for page in gone.tolist()}
        for group, gone in zip(spot.layout.groups, spot.event.pages, strict=True)
    ]

    def later(ledger: Ledger, event: Event) -> str | None:
        if _takes(ledger, event, pages):
            return "page-double-alloc"
        if isinstance(event, Protected):
            return _gives_again(ledger, event, keys)
        return None

    return Injection(later=later)


def _gives_again(ledger: Ledger, event: Protected, keys: list[set[int]]) -> str | None:
    """The content is computed again, and published beside the page that was never evicted."""
    for group, known in zip(ledger.layout.groups, keys, strict=True):
        low = int(ledger.rows.protected[event.row]) // group.page_size
        bound = event.rebinds[event.rebinds[:, 0] == group.idx][:, 1] - low
        given = np.delete(event.keys[group.idx], bound)
        if known & set(given.tolist()):
            return "index-agrees"
    return None


@FAULTS.at("admission-lost", _STREAM, ("row-single-holder", "release-once"), Admitted, when=_LATER)
def _admission_lost(spot: Spot) -> Injection:
    """An admission is never told: work is done on a row that nobody holds."""
    rid, row = spot.event.rid, spot.event.row

    def later(_ledger: Ledger, event: Event) -> str | None:
        if isinstance(event, Released | Retracted):
            return "release-once" if event.rid == rid else None
        if isinstance(event, Protected):
            return "row-single-holder" if event.row == row else None
        if isinstance(event, Allocated | StepDispatched):
            return "row-single-holder" if row in event.rows else None
        return None

    return Injection(later=later)


@FAULTS.at(
    "allocation-lost",
    _STREAM,
    ("ladder-order", "settled-bound", "page-double-free", "allocated-covers-pages"),
    Allocated,
    when=_LATER,
)
def _allocation_lost(spot: Spot) -> Injection:
    """An allocation is never told: its tokens are committed, or its pages let go, all the same."""
    pages = _pages_by_space(spot, spot.event.pages)

    def later(ledger: Ledger, event: Event) -> str | None:
        rows = ledger.rows
        if isinstance(event, Committed):
            if (event.committed_len > rows.allocated[event.rows]).any():
                return "ladder-order"
            # Allocated since, but behind the dispatch of the step whose result this is.
            unsettled = event.committed_len > rows.settled[event.rows]
            return "settled-bound" if unsettled.any() else None
        if isinstance(event, SessionSaved) and event.kept_len > rows.allocated[event.row]:
            return "ladder-order"
        if _frees_free(ledger, event, pages):
            return "page-double-free"
        if isinstance(event, Allocated):
            asked = map(num_at, derive(ledger, event).taken_at or ())
            return None if list(asked) == list(map(len, event.pages)) else "allocated-covers-pages"
        if isinstance(event, RolledBack):
            grows = event.allocated_len > rows.allocated[event.rows]
            return "allocated-covers-pages" if grows.any() else None
        return None

    return Injection(later=later)


def _frees_free(ledger: Ledger, event: Event, pages: dict[int, set[int]]) -> bool:
    """Whether an event lets one of these pages go, which is FREE."""
    if not isinstance(event, LETS_GO):
        return False
    if isinstance(event, WindowEvicted):
        lists = [(ledger.layout.groups[event.group], event.pages)]
    else:
        lists = list(zip(ledger.layout.groups, event.pages, strict=True))
    return any(
        page in pages[group.space_idx]
        and ledger.spaces[group.space_idx].state[page] == PageState.FREE
        for group, gone in lists
        for page in gone.tolist()
    )


@FAULTS.at(
    "window-move-lost",
    _STREAM,
    ("refs-balance", "page-double-alloc", "evicted-while-locked", "allocated-covers-pages"),
    WindowEvicted,
    when=_LATER,
)
def _window_move_lost(spot: Spot) -> Injection | None:
    """A cursor's move is never told: the pages it passed are left behind, taken or evicted."""
    event = spot.event
    pages = {group.space_idx: set[int]() for group in spot.layout.groups}
    pages[spot.layout.groups[event.group].space_idx].update(event.pages.tolist())
    if not event.pages.size:
        return None
    group = spot.layout.groups[event.group]
    behind = {
        row for row in event.rows.tolist() if np.isin(spot.own(row, group), event.pages).any()
    }

    def later(ledger: Ledger, other: Event) -> str | None:
        if _takes(ledger, other, pages):
            return "page-double-alloc"
        if isinstance(other, WindowEvicted):
            again = other.group == event.group and behind & set(other.rows.tolist())
            return "refs-balance" if again else None
        if isinstance(other, Retracted) and unlike_backup(ledger, other):
            return "allocated-covers-pages"
        if isinstance(other, Released | Retracted | SessionClosed):
            goes = other.row in behind and ledger.rows.in_flight[other.row] == 0
            return "refs-balance" if goes else None
        if isinstance(other, StepSettled):
            return "refs-balance" if behind & set(other.drained.tolist()) else None
        if isinstance(other, RolledBack | SessionSaved | SessionRestored):
            return "refs-balance" if _leaves_more(ledger, other, group.idx) else None
        return _evicts_locked(ledger, other, pages)

    return Injection(later=later)


def _leaves_more(
    ledger: Ledger, event: RolledBack | SessionSaved | SessionRestored, g: int
) -> bool:
    """Whether a row that is cut leaves pages of a group that the event does not name."""
    gone_at = derive(ledger, event).gone_at or ()
    left = ledger.tables[g][gone_at[g]]
    return bool(np.setdiff1d(left[left != 0], event.pages[g]).size)


@FAULTS.at(
    "dispatch-lost", _STREAM, ("in-flight-fence", "refs-balance"), StepDispatched, when=_LATER
)
def _dispatch_lost(spot: Spot) -> Injection:
    """A step is never told to begin: its result comes, or a row drains that nothing reads."""
    lost, rows = spot.event.step, set(spot.event.rows.tolist())

    def later(ledger: Ledger, event: Event) -> str | None:
        if isinstance(event, StepSettled):
            early = event.step == lost or _drains_early(ledger, event, rows)
            return "in-flight-fence" if early else None
        if not isinstance(event, Released | Retracted | SessionClosed) or event.row not in rows:
            return None
        drains = not any(map(len, event.pages)) and ledger.rows.in_flight[event.row] == 0
        return "refs-balance" if drains and ledger.rows.allocated[event.row] > 0 else None

    return Injection(later=later)


def _drains_early(ledger: Ledger, event: StepSettled, rows: set[int]) -> bool:
    """Whether one of these rows, by the ledger, drains with this step, and still waits for more."""
    columns, drained = ledger.rows, event.drained.tolist()
    return any(
        columns.state[row] == RowState.DRAINING and columns.in_flight[row] == 1
        for row in ledger.steps[event.step].rows.tolist()
        if row in rows and row not in drained
    )
