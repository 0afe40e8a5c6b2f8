"""Guards over page tables: what a row references is what its lengths ask for, and it may write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvlife.events import Allocated, Protected, Resized, RolledBack
from kvlife.invariants.effect import holders, repeated, state_names, surplus
from kvlife.invariants.finding import Evidence, few, naming
from kvlife.ledger import PageState, RowState
from kvlife.ledger.entries import touched_entries

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvlife.config import GroupLayout
    from kvlife.invariants.effect import I64, Effect, Index, Moves
    from kvlife.ledger import Ledger

    Bools = npt.NDArray[np.bool_]


def allocated_covers_pages(effect: Effect) -> Evidence | None:
    """After the event the rows reference exactly the pages that lengths and cursors ask for."""
    if isinstance(effect.event, Resized):
        return _dropped_in_use(effect, effect.event)
    for moves in effect.moves:
        found = (
            _counts(effect, moves)
            or _not_joinable(effect, moves)
            or _still_referenced(effect, moves)
            or _wrong_links(effect, moves)
        )
        if found is not None:
            return found
    return _wrong_way(effect)


def _counts(effect: Effect, moves: Moves) -> Evidence | None:
    for what, pages, spots in (
        ("taken", moves.taken, moves.taken_at),
        ("joined", moves.joined, moves.joined_at),
    ):
        if pages.size != spots.size:
            return effect.page_evidence(
                moves.group.space_idx,
                pages,
                why=f"{pages.size} pages are {what} where the lengths ask for {spots.size}",
                group=moves.group.name,
                rows=few(effect.rows),
                allocated=few(effect.after.allocated),
                allocated_before=few(effect.before.allocated),
            )
    return None


def _not_joinable(effect: Effect, moves: Moves) -> Evidence | None:
    """Pages that a row begins to share: CACHED ones of the group, each once (page 0 apart)."""
    pages = moves.joined[moves.joined != 0]
    space = effect.space_of(moves.group)
    wrong = (space.state[pages] != PageState.CACHED) | (space.group[pages] != moves.group.idx)
    twice = repeated(pages)
    if not wrong.any() and not twice.size:
        return None
    why = "a shared page is not CACHED in this group" if wrong.any() else "a page is shared twice"
    named = pages[wrong] if wrong.any() else twice
    return effect.page_evidence(
        moves.group.space_idx, named, why=why, group=moves.group.name, rows=few(effect.rows)
    )


def _still_referenced(effect: Effect, moves: Moves) -> Evidence | None:
    """Pages let go that stay in the table of a row of the event: it would read FREE pages."""
    if effect.keeps_its_pages:
        # in-flight-fence says that a row in flight lets nothing go.
        return None
    early = surplus(moves.gone, moves.leaving)
    early = np.intersect1d(early, effect.held_by_rows(moves.group))
    if not early.size:
        return None
    return effect.page_evidence(
        moves.group.space_idx,
        early,
        why="the page is let go while its row goes on referencing it",
        group=moves.group.name,
        rows=few(effect.rows),
        holders=holders(effect.ledger, effect.rows),
    )


def _wrong_links(effect: Effect, moves: Moves) -> Evidence | None:
    """Rebinds and copies: the page let go is the table's, a canonical one holds the same key."""
    if not moves.links.size:
        return None
    rows, table_idx, own, new = moves.links.T
    table = effect.ledger.tables[moves.group.idx]
    entries = table[rows * moves.group.table_width + table_idx]
    wrong = (entries != own) | (own == 0) | (own == new)
    if isinstance(effect.event, Protected):
        wrong |= _not_canonical(effect, effect.event, moves.group, table_idx, new)
    else:
        wrong |= ~np.isin(rows, effect.rows)
    if not wrong.any():
        return None
    return effect.page_evidence(
        moves.group.space_idx,
        own[wrong],
        why="the table has another page there, or the new page does not hold the same content",
        group=moves.group.name,
        rows=few(rows[wrong]),
        table_idx=few(table_idx[wrong]),
        in_table=few(entries[wrong]),
        new_pages=few(new[wrong]),
    )


def _not_canonical(
    effect: Effect, event: Protected, group: GroupLayout, table_idx: I64, canonical: I64
) -> Bools:
    space = effect.space_of(group)
    keys = event.keys[group.idx]
    low = max(int(effect.before.protected[0]), 0) // group.page_size
    at = table_idx - low
    inside = (at >= 0) & (at < keys.size)
    wanted = np.zeros(at.size, np.uint64)
    wanted[inside] = keys[at[inside]]
    known = (space.state[canonical] == PageState.CACHED) & (space.group[canonical] == group.idx)
    # Page 0 is nobody's page: reserved-untouched says so.
    unequal = ~known | (space.key[canonical] != wanted) | (wanted == 0)
    broken: Bools = unequal & (canonical != 0)
    return broken


def _wrong_way(effect: Effect) -> Evidence | None:
    old, new = effect.before.allocated, effect.after.allocated
    if isinstance(effect.event, Allocated):
        wrong, why = new < old, "an allocation shrinks, and lets no page go"
    elif isinstance(effect.event, RolledBack):
        wrong, why = new > old, "a roll-back grows, and takes no page"
    else:
        return None
    if not wrong.any():
        return None
    rows = effect.rows[wrong]
    found = naming(rows=rows, allocated=new[wrong], allocated_before=old[wrong])
    return {"why": why} | found | {"holders": holders(effect.ledger, rows)}


def _dropped_in_use(effect: Effect, event: Resized) -> Evidence | None:
    space = effect.ledger.spaces[event.space]
    dropped = np.flatnonzero(space.refs[event.num_pages :] > 0) + event.num_pages
    if not dropped.size:
        return None
    return effect.page_evidence(
        event.space, dropped, why="a page that a row references is dropped", asked=event.num_pages
    )


def write_exclusive(effect: Effect) -> Evidence | None:
    """After the event, what rows may still write lies on PRIVATE pages that they alone have."""
    return unwritable(effect.ledger, effect.rows)


def unwritable(ledger: Ledger, index: Index) -> Evidence | None:
    """The pages of [committed, allocated) of HELD rows that are not the row's alone."""
    rows = ledger.rows
    index = index[rows.state[index] == RowState.HELD]
    start = rows.committed[index].astype(np.int64)
    if ledger.layout.scheduled:
        start = np.maximum(start, rows.protected[index])
    end = rows.allocated[index].astype(np.int64)
    for group in ledger.layout.groups:
        at = touched_entries(group, index, start, end)
        pages = ledger.tables[group.idx][at]
        space = ledger.spaces[group.space_idx]
        # 0 is a position that the window has passed, or one whose page never came.
        known = (pages > 0) & (pages < space.num_pages)
        at, pages = at[known], pages[known]
        bad = (space.state[pages] != PageState.PRIVATE) | (space.refs[pages] != 1)
        if bad.any():
            owners = at[bad] // group.table_width
            return {
                "group": group.name,
                **naming(rows=owners, pages=pages[bad], refs=space.refs[pages[bad]]),
                "states": state_names(space.state[pages[bad]]),
                "holders": holders(ledger, owners),
                "last_events": few(space.last_event[pages[bad]] + np.int64(ledger.seq_base)),
            }
    return None
