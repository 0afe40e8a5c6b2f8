"""Faults in the cursors of sliding windows: moved too far, back, or between pages."""

from __future__ import annotations

import attrs

from kvlife import transitions
from kvlife.config import GroupLayout
from kvlife.events import Admitted, Resumed, RolledBack, SessionRestored, WindowEvicted
from kvlife.ledger import PageState
from kvlife.testing.faults.fault import Faults, Injection, Kind
from kvlife.testing.faults.spot import Spot, changed, replaced

FAULTS = Faults()
_STREAM, _DECISION = Kind.STREAM, Kind.DECISION


def _moved(spot: Spot, at: int, cursor: int) -> Injection:
    """The cursor of one row goes elsewhere, and lets go of what it passes."""
    lens = changed(spot.event.evicted_len, at, cursor)
    wrong = spot.naming_gone(attrs.evolve(spot.event, evicted_len=lens))
    return Injection(events=(wrong,), invariant="window-cursor")


def _group(spot: Spot) -> GroupLayout:
    group: GroupLayout = spot.layout.groups[spot.event.group]
    return group


def _bound(spot: Spot, length: int) -> int:
    group = _group(spot)
    return transitions.cursor_bound(length, group.window or 1, group.page_size)


@FAULTS.at("cursor-by-the-scheduled-length", _DECISION, "window-cursor", WindowEvicted)
def _cursor_by_the_scheduled_length(spot: Spot) -> Injection | None:
    """A cursor goes by what is allocated, and passes what a query needs after a roll-back."""
    rows = spot.ledger.rows
    order = list(range(spot.event.rows.size))
    for at in spot.rng.sample(order, len(order)):
        row = int(spot.event.rows[at])
        scheduled = _bound(spot, int(rows.allocated[row]))
        if scheduled > _bound(spot, int(rows.committed[row])):
            return _moved(spot, at, scheduled)
    return None


@FAULTS.at("cursor-one-page-too-far", _DECISION, "window-cursor", WindowEvicted)
def _cursor_one_page_too_far(spot: Spot) -> Injection:
    """A cursor passes one page too many."""
    at = spot.rng.randrange(spot.event.rows.size)
    committed = int(spot.ledger.rows.committed[spot.event.rows[at]])
    return _moved(spot, at, _bound(spot, committed) + _group(spot).page_size)


@FAULTS.at("cursor-inside-a-page", _STREAM, "window-cursor", WindowEvicted)
def _cursor_inside_a_page(spot: Spot) -> Injection | None:
    """A cursor stands a token short of a whole page."""
    if _group(spot).page_size == 1:
        return None
    at = spot.rng.randrange(spot.event.rows.size)
    return _moved(spot, at, int(spot.event.evicted_len[at]) - 1)


@FAULTS.at("cursor-goes-back", _STREAM, "window-cursor", WindowEvicted)
def _cursor_goes_back(spot: Spot) -> Injection | None:
    """A cursor goes back to pages that are gone."""
    group = _group(spot)
    old = spot.ledger.rows.cursors[group.window_idx, spot.event.rows]
    at = spot.where(old >= group.page_size)
    return None if at is None else _moved(spot, at, int(old[at]) - group.page_size)


@FAULTS.at("window-one-page-too-few", _STREAM, "refs-balance", WindowEvicted)
def _window_one_page_too_few(spot: Spot) -> Injection | None:
    """A cursor passes a page and does not let it go."""
    pages = spot.event.pages.tolist()
    if not pages:
        return None
    del pages[spot.rng.randrange(len(pages))]
    wrong = spot.with_list(spot.event, _group(spot), pages)
    return Injection(events=(wrong,), invariant="refs-balance")


@FAULTS.at("window-one-page-too-many", _DECISION, "allocated-covers-pages", WindowEvicted)
def _window_one_page_too_many(spot: Spot) -> Injection | None:
    """A page inside the window is let go, and the cursor stays before it."""
    gone, group = spot.event.pages.tolist(), _group(spot)
    kept = [
        int(page)
        for row in spot.event.rows.tolist()
        for page in spot.own(row, group).tolist()
        if page not in gone and spot.space(group).refs[page] == 1
    ]
    page = spot.one(kept)
    if page is None:
        return None
    wrong = spot.with_list(spot.event, group, [*gone, page])
    return Injection(events=(wrong,), invariant="allocated-covers-pages")


@FAULTS.at("window-page-of-another-row", _DECISION, "page-freed-by-stranger", WindowEvicted)
def _window_page_of_another_row(spot: Spot) -> Injection | None:
    """A cursor lets go of a page that only a row references which is not in the event."""
    group, rows = _group(spot), spot.event.rows.tolist()
    ours = {page for row in rows for page in spot.own(row, group).tolist()}
    in_use = spot.pages_in(group, PageState.PRIVATE).tolist()
    page = spot.one(page for page in in_use if page not in ours)
    if page is None:
        return None
    wrong = spot.with_list(spot.event, group, [*spot.event.pages.tolist(), page])
    return Injection(events=(wrong,), invariant="page-freed-by-stranger")


@FAULTS.at("hit-without-its-window", _DECISION, "window-cursor", Admitted, Resumed)
def _hit_without_its_window(spot: Spot) -> Injection | None:
    """A hit leaves out the first page of its window."""
    event = spot.event
    if isinstance(event, Resumed) and event.restored_len > event.prefix_len:
        # A backup may begin later than the prefix ends.
        return None
    for group in spot.layout.window_groups:
        idx = group.window_idx or 0
        cursor = event.evicted_len[idx]
        pages = event.pages[group.idx]
        bound = transitions.cursor_bound(event.prefix_len, group.window or 1, group.page_size)
        if event.evict_floor or not pages.size or cursor + group.page_size <= bound:
            continue
        wrong = attrs.evolve(
            event, evicted_len=replaced(event.evicted_len, idx, cursor + group.page_size)
        )
        wrong = spot.with_list(wrong, group, pages[1:].tolist())
        return Injection(events=(wrong,), invariant="window-cursor")
    return None


@FAULTS.at("rolled-back-past-the-window", _DECISION, "window-cursor", RolledBack, SessionRestored)
def _rolled_back_past_the_window(spot: Spot) -> Injection | None:
    """A row goes back so far that the window of its new end is gone."""
    event, rows = spot.event, spot.ledger.rows
    many = isinstance(event, RolledBack)
    order = list(range(event.rows.size)) if many else [0]
    for at in spot.rng.sample(order, len(order)):
        row = int(event.rows[at]) if many else event.row
        length = int(rows.protected[row])
        if not _lacks_its_window(spot, row, length):
            continue
        if many:
            wrong = attrs.evolve(
                event,
                allocated_len=changed(event.allocated_len, at, length),
                committed_len=changed(event.committed_len, at, length),
            )
        else:
            wrong = attrs.evolve(event, kept_len=length)
        return Injection(events=(spot.naming_gone(wrong),), invariant="window-cursor")
    return None


def _lacks_its_window(spot: Spot, row: int, length: int) -> bool:
    """Whether a row that ends at a length needs window pages that its cursor has passed."""
    rows = spot.ledger.rows
    for group in spot.layout.window_groups:
        size, cursor = group.page_size, int(rows.cursors[group.window_idx, row])
        first = max(0, length - (group.window or 1) + 1) // size
        kept = -(-int(rows.floor[row]) // size)
        if min(cursor // size, -(-length // size)) > max(first, kept):
            return True
    return False
