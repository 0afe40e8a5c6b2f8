"""Mending a publication: what is committed here, under keys that no other page has."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from kvlife import transitions
from kvlife.config import GroupLayout
from kvlife.events import Event, Protected
from kvlife.ledger import PageSpace, PageState
from kvlife.replay.shrinking.state import State

U64 = npt.NDArray[np.uint64]


def mend_protected(state: State, event: Protected) -> Event | None:
    """Publish up to what is committed, in whole pages; None where that is no more than before."""
    ledger, row = state.ledger, event.row
    rows = ledger.rows
    top = rows.allocated[row] if ledger.layout.scheduled else rows.committed[row]
    length = transitions.page_floor(min(event.protected_len, int(top)), ledger.layout.align)
    old = int(rows.protected[row])
    session = ledger.sessions.get(rows.session[row] or "")
    if length <= old or (session is not None and session.num_turns):
        return None
    life = state.lives[state.life_of[row]]
    keys: list[U64] = []
    links: list[tuple[int, int, int, int]] = []
    for group in ledger.layout.groups:
        entries = range(old // group.page_size, length // group.page_size)
        known = life.keys[group.idx]
        canonical = {
            entry: page
            for group_idx, entry, _own, page in event.rebinds.tolist()
            if group_idx == group.idx
            and entry in entries
            and _is_cached_as(ledger.spaces[group.space_idx], group, page, known.get(entry, 0))
        }
        table = ledger.tables[group.idx][row * group.table_width :]
        for entry, page in canonical.items():
            if table[entry] not in (0, page):
                links.append((group.idx, entry, int(table[entry]), page))
        chosen = _keys_of(state, group, row, known, entries, canonical)
        keys.append(np.array(chosen, np.uint64))
        keys[-1].setflags(write=False)
    rebinds = np.array(links, np.int32).reshape(-1, 4)
    rebinds.setflags(write=False)
    return Protected(row, length, tuple(keys), rebinds)


def _keys_of(
    state: State,
    group: GroupLayout,
    row: int,
    known: Mapping[int, int],
    entries: range,
    canonical: Mapping[int, int],
) -> list[int]:
    """The key for each entry: as in the run, a new one where a page has that, 0 where none goes."""
    space, table = state.ledger.spaces[group.space_idx], state.ledger.tables[group.idx]
    mine = (space.state == PageState.CACHED) & (space.group == group.idx)
    used = set() if state.ledger.layout.duplicates else set(space.key[mine].tolist())
    fresh = 0
    keys = []
    for entry in entries:
        page = int(table[row * group.table_width + entry])
        key = known.get(entry, 0) if page else 0
        if key and entry not in canonical:
            if space.state[page] == PageState.CACHED:
                key = int(space.key[page])
            elif key in used:
                key = fresh = next(n for n in range(fresh + 1, 1 << 62) if n not in used)
            used.add(key)
        keys.append(key)
    return keys


def _is_cached_as(space: PageSpace, group: GroupLayout, page: int, key: int) -> bool:
    return bool(
        page < space.num_pages
        and space.state[page] == PageState.CACHED
        and space.group[page] == group.idx
        and space.key[page] == key
    )
