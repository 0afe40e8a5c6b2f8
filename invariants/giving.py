"""Guards over pages that change hands: taken once, let go once, and by who references them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvlife.events import Evicted, Released, Retracted, SessionClosed
from kvlife.invariants.effect import holders, repeated, surplus
from kvlife.invariants.finding import MAX_NAMED, Evidence, few, naming
from kvlife.ledger import PageState

if TYPE_CHECKING:
    from kvlife.invariants.effect import I64, Effect, Moves


def page_double_alloc(effect: Effect) -> Evidence | None:
    """A taken page was FREE and stands once; one in quarantine has no owner, but pins."""
    for space_idx, pages in enumerate(effect.taken_by_space()):
        state = effect.ledger.spaces[space_idx].state[pages]
        owned = pages[(state == PageState.PRIVATE) | (state == PageState.CACHED)]
        twice = repeated(pages)
        if owned.size or twice.size:
            found = owned if owned.size else twice
            why = "the page was not FREE" if owned.size else "the page stands twice"
            return effect.page_evidence(
                space_idx, found, why=why, owners=owners_of(effect, space_idx, found)
            )
    return None


def owners_of(effect: Effect, space_idx: int, pages: npt.ArrayLike) -> list[list[str]]:
    """For each of the first few pages, who references it; a search of the tables."""
    ledger = effect.ledger
    found: list[list[str]] = []
    for page in few(pages):
        names: list[str] = []
        for group in ledger.layout.groups:
            if group.space_idx == space_idx and page != 0:
                spots = np.flatnonzero(ledger.tables[group.idx] == page)
                names += holders(ledger, np.unique(spots // group.table_width))
        found.append(names)
    return found


def page_double_free(effect: Effect) -> Evidence | None:
    """A page let go is let go at most as often as it is referenced; an evicted one was not FREE."""
    for space_idx, pages in enumerate(effect.let_go_by_space()):
        space = effect.ledger.spaces[space_idx]
        named, counts = np.unique(pages[pages != 0], return_counts=True)
        gone = (space.state[named] == PageState.FREE) | (
            space.state[named] == PageState.QUARANTINED
        )
        # No ref at all on a page that is not FREE: it is a stranger's, or CACHED and unlocked.
        many = (counts > space.refs[named]) & (counts > 1)
        if (gone | many).any():
            why = "the page was let go before" if gone.any() else "the page stands too often"
            return effect.page_evidence(space_idx, named[gone | many], why=why)
    if isinstance(effect.event, Evicted):
        return _evicted_twice(effect, effect.event)
    return None


def _evicted_twice(effect: Effect, event: Evicted) -> Evidence | None:
    for space_idx, pages in enumerate(evicted_by_space(effect, event)):
        free = pages[effect.ledger.spaces[space_idx].state[pages] == PageState.FREE]
        twice = repeated(pages)
        if free.size or twice.size:
            why = "the page was FREE" if free.size else "the page stands twice"
            return effect.page_evidence(space_idx, free if free.size else twice, why=why)
    return None


def evicted_by_space(effect: Effect, event: Evicted) -> list[I64]:
    """Per page space, every page that is evicted."""
    return effect.by_space((pages,) for pages in event.pages)


def page_freed_by_stranger(effect: Effect) -> Evidence | None:
    """Each page let go is referenced by the rows of the event, as often as it is named."""
    for moves in effect.moves:
        named = np.concatenate((moves.gone.astype(np.int64), moves.links[:, 2]))
        if not named.size:
            continue
        foreign = surplus(named, effect.held_by_rows(moves.group))
        if foreign.size:
            space_idx = moves.group.space_idx
            return effect.page_evidence(
                space_idx,
                foreign,
                group=moves.group.name,
                rows=few(effect.rows),
                holders=holders(effect.ledger, effect.rows),
                owners=owners_of(effect, space_idx, foreign),
            )
    return None


def refs_balance(effect: Effect) -> Evidence | None:
    """Everything that the event should let go is named: pages, host pages and pins."""
    for moves in effect.moves:
        found = _left_behind(effect, moves) or _overwritten(effect, moves)
        if found is not None:
            return found
    match effect.event:
        case Released():
            return _host_pages(effect, effect.event) or _pins_of(effect, effect.event.rid)
        case Retracted():
            return _pins_of(effect, effect.event.rid)
        case SessionClosed():
            return _row_left(effect, effect.event)
        case _:
            return None


def _left_behind(effect: Effect, moves: Moves) -> Evidence | None:
    left = surplus(moves.leaving, moves.gone)
    if not left.size:
        return None
    return effect.page_evidence(
        moves.group.space_idx,
        left,
        why="the page loses its row without being let go",
        group=moves.group.name,
        rows=few(effect.rows),
        holders=holders(effect.ledger, effect.rows),
    )


def _overwritten(effect: Effect, moves: Moves) -> Evidence | None:
    spots = np.concatenate((moves.taken_at, moves.joined_at))
    pages = effect.ledger.tables[moves.group.idx][spots]
    if not pages.any():
        return None
    rows = spots[pages != 0] // moves.group.table_width
    return effect.page_evidence(
        moves.group.space_idx,
        pages[pages != 0],
        why="the table entry is overwritten while it names a page",
        group=moves.group.name,
        rows=few(rows),
    )


def _host_pages(effect: Effect, event: Released) -> Evidence | None:
    waiting = effect.ledger.waiting.get(event.rid)
    backup = None if waiting is None else waiting.backup
    owned = np.empty(0, np.int32) if backup is None else backup
    if np.array_equal(np.sort(owned), np.sort(event.host_pages)):
        return None
    found = naming(host_pages=event.host_pages, host_pages_owned=owned)
    return {"why": "the host pages are not the backup's", "rid": event.rid} | found


def _pins_of(effect: Effect, rid: str) -> Evidence | None:
    pins = [(pin_id, pin) for pin_id, pin in effect.ledger.pins.items() if pin.owner == rid]
    if not pins:
        return None
    return {
        "why": "the request still owns pins",
        "rid": rid,
        "pins": [pin_id for pin_id, _pin in pins[:MAX_NAMED]],
        "num_pins": len(pins),
        "pinned_at": [pin.seq for _pin_id, pin in pins[:MAX_NAMED]],
        "pages": few(pins[0][1].pages),
    }


def _row_left(effect: Effect, event: SessionClosed) -> Evidence | None:
    session = effect.ledger.sessions.get(event.session_id)
    if event.row is not None or session is None or session.rid is not None:
        return None
    return {
        "why": "an idle session is closed without its row",
        "session": event.session_id,
        "rows": [session.row],
    }
