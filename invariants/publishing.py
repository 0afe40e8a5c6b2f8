"""Guards over keys, over what is reserved, and over what an idle engine may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvlife.events import Admitted, Marked, Pinned, Protected, Resized, Resumed
from kvlife.invariants.effect import holders, page_evidence
from kvlife.invariants.finding import MAX_NAMED, Evidence, few, naming
from kvlife.invariants.hosting import lost_on_host
from kvlife.ledger import PageState

if TYPE_CHECKING:
    from kvlife.config import GroupLayout
    from kvlife.events.requests import U64
    from kvlife.invariants.effect import I32, Effect
    from kvlife.ledger import Ledger


def index_agrees(effect: Effect) -> Evidence | None:
    """A key is given to a page that is there and becomes CACHED, and to one page only."""
    match effect.event:
        case Protected():
            for group in effect.ledger.layout.groups:
                found = _keys_of_group(effect, effect.event, group)
                if found is not None:
                    return found
        case Resized():
            return _dropped_from_cache(effect, effect.event)
    return None


def _keys_of_group(effect: Effect, event: Protected, group: GroupLayout) -> Evidence | None:
    ledger, keys, size = effect.ledger, event.keys[group.idx], group.page_size
    named: Evidence = {"group": group.name, "rows": [event.row]}
    low = max(int(effect.before.protected[0]), 0) // size
    wanted = max(event.protected_len // size - low, 0)
    if keys.size != wanted:
        return {"why": f"{keys.size} keys for {wanted} pages"} | named
    twice = repeated_keys(keys)
    if twice.size and not ledger.layout.duplicates:
        return {
            "why": "two pages get one key",
            "keys": [hex(int(k)) for k in twice[:MAX_NAMED]],
        } | named
    table_idx = low + np.flatnonzero(keys)
    table_idx = table_idx[table_idx < group.table_width]
    given = keys[table_idx - low]
    pages = ledger.tables[group.idx][event.row * group.table_width + table_idx].copy()
    links = event.rebinds[event.rebinds[:, 0] == group.idx]
    rebound = np.isin(table_idx, links[:, 1])
    state, key = ledger.spaces[group.space_idx].state[pages], ledger.spaces[group.space_idx].key
    fresh = state == PageState.PRIVATE
    same = (state == PageState.CACHED) & (key[pages] == given)
    wrong = ~(fresh | same | rebound)
    if wrong.any():
        found = effect.page_evidence(group.space_idx, pages[wrong], why="no page to publish there")
        return {**found, **named, **naming(table_idx=table_idx[wrong])}
    new = fresh & ~rebound
    in_use = _key_in_use(effect, group, pages[new], given[new])
    return None if in_use is None else {**in_use, **named}


def _key_in_use(effect: Effect, group: GroupLayout, pages: I32, keys: U64) -> Evidence | None:
    """Pages of the cache that have one of these keys, where each key may stand once."""
    if effect.ledger.layout.duplicates or not pages.size:
        return None
    space = effect.space_of(group)
    known = np.flatnonzero(
        np.isin(space.key, keys) & (space.state == PageState.CACHED) & (space.group == group.idx)
    )
    if not known.size:
        return None
    return effect.page_evidence(
        group.space_idx,
        known,
        why="a page of the cache has this key: the row is to be rebound to it",
        own_pages=few(pages[np.isin(keys, space.key[known])]),
    )


def repeated_keys(keys: U64) -> U64:
    """The keys above 0 that stand more than once."""
    found, counts = np.unique(keys[keys != 0], return_counts=True)
    twice: U64 = found[counts > 1]
    return twice


def _dropped_from_cache(effect: Effect, event: Resized) -> Evidence | None:
    space = effect.ledger.spaces[event.space]
    lost = np.flatnonzero(space.state[event.num_pages :] == PageState.CACHED) + event.num_pages
    if not lost.size:
        return None
    return effect.page_evidence(event.space, lost, why="a CACHED page is dropped, not evicted")


def reserved_untouched(effect: Effect) -> Evidence | None:
    """Page 0 and row 0 take padded writes and are never handed out."""
    event = effect.event
    if isinstance(event, Admitted | Resumed) and event.row == 0:
        return {"why": "row 0 is bound", "rows": [0], "rid": event.rid}
    if isinstance(event, Pinned) and (event.pages == 0).any():
        return {"why": "page 0 is pinned", "pages": [0], "pin": event.pin_id}
    if isinstance(event, Resized):
        if event.num_pages >= 1:
            return None
        return {"why": "a page space without its reserved page", "pages": [0]}
    for moves in effect.moves:
        for what, pages in (
            ("taken", moves.taken),
            ("shared", moves.joined),
            ("put in place of another", moves.links[:, 3]),
        ):
            if (pages == 0).any():
                rows = few(effect.rows)
                return {
                    "why": f"page 0 is {what}",
                    "pages": [0],
                    "group": moves.group.name,
                    "rows": rows,
                    "holders": holders(effect.ledger, rows),
                }
    return None


def idle_no_leak(effect: Effect) -> Evidence | None:
    """At an idle mark nothing is held: every page is FREE, or CACHED without refs."""
    if not isinstance(effect.event, Marked) or not effect.event.idle:
        return None
    return held_when_idle(effect.ledger)


def held_when_idle(ledger: Ledger) -> Evidence | None:
    """What an idle engine still holds: rows, sessions, pins, steps, else pages of nobody."""
    used = ledger.rows.in_use()
    evidence: Evidence = {}
    if used.size:
        evidence |= naming(rows=used, last_events=ledger.rows.last_event[used])
        evidence["holders"] = holders(ledger, used)
    for name, book in (
        ("sessions", ledger.sessions),
        ("pins", ledger.pins),
        ("open_steps", ledger.steps),
    ):
        if book:
            evidence[name] = list(book)[:MAX_NAMED]
            evidence[f"num_{name}"] = len(book)
    if ledger.pins:
        evidence["pinned_at"] = [pin.seq for pin in list(ledger.pins.values())[:MAX_NAMED]]
    if evidence:
        return {"why": "something is still held"} | evidence
    for space_idx, space in enumerate(ledger.spaces):
        kept = (space.state == PageState.PRIVATE) | (space.state == PageState.QUARANTINED)
        lost = np.flatnonzero(kept | (space.refs > 0) | (space.pins > 0))
        if lost.size:
            found = page_evidence(ledger, space_idx, lost)
            return {"why": "pages are held by nobody"} | found
    return lost_on_host(ledger)
