"""Audits of the pages: states, references, pins, keys and the free list of the whole state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvlife.invariants.effect import holders, page_evidence
from kvlife.invariants.finding import Evidence, few, naming
from kvlife.invariants.publishing import held_when_idle
from kvlife.ledger import PageState

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvlife.config import GroupLayout
    from kvlife.invariants.census import Census, Index


def _pages(census: Census, space_idx: int, pages: npt.ArrayLike, **more: object) -> Evidence | None:
    pages = np.asarray(pages)
    if not pages.size:
        return None
    return page_evidence(census.ledger, space_idx, pages, **more)


def _owners(census: Census, group: GroupLayout, at: Index) -> Evidence:
    rows = at // group.table_width
    found = naming(rows=rows, table_idx=at % group.table_width)
    return {"group": group.name} | found | {"holders": holders(census.ledger, rows)}


def audit_covers(census: Census) -> Evidence | None:
    """Rows have a page at each entry that is asked for, and at no other."""
    for asked in census.asked:
        for why, at in (
            ("an entry that the lengths ask for has no page", asked.missing),
            ("an entry that the window has passed has a page", asked.extra),
        ):
            if at.size:
                pages = few(census.ledger.tables[asked.group.idx][at])
                return {"why": why, "pages": pages} | _owners(census, asked.group, at)
    return None


def audit_refs(census: Census) -> Evidence | None:
    """Refs and pins equal their holders, page by page."""
    for space_idx, space in enumerate(census.ledger.spaces):
        for what, column, counted in (
            ("refs", space.refs, census.refs[space_idx]),
            ("pins", space.pins, census.pins[space_idx]),
        ):
            bad = np.flatnonzero(column != counted)
            if bad.size:
                why = f"{what} do not equal the holders"
                return _pages(census, space_idx, bad, why=why, holders=few(counted[bad]))
    return None


def audit_pinned(census: Census) -> Evidence | None:
    """A pinned page is not FREE, and a QUARANTINED one is pinned."""
    for space_idx, space in enumerate(census.ledger.spaces):
        free = (space.state == PageState.FREE) & (space.pins > 0)
        bad = np.flatnonzero(free | ((space.state == PageState.QUARANTINED) & (space.pins == 0)))
        if bad.size:
            return _pages(census, space_idx, bad)
    return None


def audit_reserved(census: Census) -> Evidence | None:
    """Page 0 of each space is RESERVED, without refs, pins or key, and no table names it."""
    for space_idx, space in enumerate(census.ledger.spaces):
        touched = space.refs[0] or space.pins[0] or space.key[0]
        if space.state[0] != PageState.RESERVED or touched:
            return _pages(census, space_idx, [0])
        stray = np.flatnonzero(space.state[1:] == PageState.RESERVED) + 1
        if stray.size:
            return _pages(census, space_idx, stray)
    return None


def audit_idle(census: Census) -> Evidence | None:
    """Where the audit is of an idle engine, nothing is held."""
    return held_when_idle(census.ledger) if census.idle else None


def audit_index(census: Census) -> Evidence | None:
    """Keys stand on CACHED pages, each once, and the index finds exactly those pages."""
    layout = census.ledger.layout
    for space_idx, space in enumerate(census.ledger.spaces):
        cached = space.state == PageState.CACHED
        bad = np.flatnonzero(cached != (space.key != 0))
        if bad.size:
            return _pages(census, space_idx, bad, why="a key without a CACHED page, or the reverse")
        groups = [group for group in layout.groups if group.space_idx == space_idx]
        for group in groups:
            mine = cached if len(groups) == 1 else cached & (space.group == group.idx)
            found = _keys_and_index(census, group, np.flatnonzero(mine))
            if found is not None:
                return found
    return None


def _keys_and_index(census: Census, group: GroupLayout, pages: Index) -> Evidence | None:
    space = census.ledger.spaces[group.space_idx]
    if not census.ledger.layout.duplicates:
        ordered = np.sort(space.key[pages])
        if (ordered[1:] == ordered[:-1]).any():
            return _under_one_key(census, group.space_idx, pages)
    if census.index is None:
        return None
    indexed = np.sort(census.index.pages(group.idx))
    if np.array_equal(indexed, pages):
        return None
    twice = indexed[1:][indexed[1:] == indexed[:-1]]
    return {
        "why": "the index and the CACHED pages differ",
        "group": group.name,
        **naming(
            only_in_index=np.setdiff1d(indexed, pages),
            not_in_index=np.setdiff1d(pages, indexed),
            twice_in_index=twice,
        ),
    }


def _under_one_key(census: Census, space_idx: int, pages: Index) -> Evidence | None:
    keys = census.ledger.spaces[space_idx].key[pages]
    order = np.argsort(keys, kind="stable")
    same = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    pairs = np.stack((pages[order[same]], pages[order[same + 1]]), axis=1).ravel()
    return _pages(census, space_idx, pairs, why="two pages have one key")


def audit_aliased(census: Census) -> Evidence | None:
    """A PRIVATE page is one row's: nothing forks rows yet."""
    for space_idx, space in enumerate(census.ledger.spaces):
        counted = census.refs[space_idx]
        bad = np.flatnonzero((space.state == PageState.PRIVATE) & (counted > 1))
        if bad.size:
            found = _pages(census, space_idx, bad) or {}
            return found | _first_owners(census, space_idx, int(bad[0]))
    return None


def audit_use_after_free(census: Census) -> Evidence | None:
    """No row references a page that is FREE, or in quarantine."""
    for asked in census.asked:
        state = census.ledger.spaces[asked.group.space_idx].state[asked.pages]
        dead = (state != PageState.PRIVATE) & (state != PageState.CACHED)
        if dead.any():
            found = _pages(census, asked.group.space_idx, asked.pages[dead])
            return (found or {}) | _owners(census, asked.group, asked.at[dead])
    return None


def _first_owners(census: Census, space_idx: int, page: int) -> Evidence:
    rows: list[int] = []
    for asked in census.asked:
        if asked.group.space_idx == space_idx:
            rows += few(asked.at[asked.pages == page] // asked.group.table_width)
    return {"page": page, "rows": rows, "holders": holders(census.ledger, rows)}


def audit_page_conservation(census: Census) -> Evidence | None:
    """Each page has one state, and the free list is the FREE pages, each once."""
    for space_idx, space in enumerate(census.ledger.spaces):
        unknown = np.flatnonzero(space.state > PageState.RESERVED)
        if unknown.size:
            return _pages(census, space_idx, unknown, why="no such state")
        listed, free = space.free.pages(), space.state == PageState.FREE
        is_listed = np.zeros(space.num_pages, np.bool_)
        is_listed[listed] = True
        if listed.size == np.count_nonzero(free) and np.array_equal(is_listed, free):
            continue
        count = np.bincount(listed, minlength=space.num_pages)
        bad = np.flatnonzero(count != free)
        if bad.size:
            why = "the free list is not the FREE pages, each once"
            return _pages(census, space_idx, bad, why=why, times_listed=few(count[bad]))
    return None
