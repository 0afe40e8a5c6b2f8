"""What the lives of a program have at their table entries, as its last state shows it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from kvlife.events import Admitted, Event, Resumed
from kvlife.ledger import Ledger, RowState, derive
from kvlife.ledger.spans import indices
from kvlife.replay.shrinking.lives import I64, Life, LifeNotes
from kvlife.replay.shrinking.reading import Piece, Reading, rows_named

Ints = npt.NDArray[np.integer]


def at_end(
    ledger: Ledger, notes: LifeNotes, reading: Reading, last: Event
) -> tuple[Piece, dict[int, Life]]:
    """The faulty event with its lives, and what all lives have in the state before it.

    A row in use has what its table says, a life that is over the pages that it took last, unless
    the notes were kept with a book. Pages that the faulty event would bring are there as well.
    """
    of_row, lives = notes.of_row.copy(), dict(reading.lives)
    if isinstance(last, Admitted | Resumed):
        of_row[last.row] = ledger.next_seq
        lives[ledger.next_seq] = Life.empty(len(ledger.layout.groups))
    _from_tables(ledger, notes, lives)
    _from_notes(ledger, notes, lives)
    _from_event(ledger, of_row, lives, last)
    return Piece(last, tuple(int(of_row[row]) for row in rows_named(last))), lives


def _from_tables(ledger: Ledger, notes: LifeNotes, lives: Mapping[int, Life]) -> None:
    for row in np.flatnonzero(ledger.rows.state != RowState.FREE).tolist():
        life = lives.get(int(notes.of_row[row]))
        if life is None:
            continue
        for group in ledger.layout.groups:
            table = ledger.pages_of(row, group.idx)
            entries = np.flatnonzero(table)
            if notes.book is not None:
                # What an entry was given, a rebind may have changed since: that will come again.
                known = life.pages[group.idx]
                entries = np.array([e for e in entries.tolist() if e not in known], np.intp)
            _put(ledger, life, group.idx, entries, table[entries])


def _from_notes(ledger: Ledger, notes: LifeNotes, lives: Mapping[int, Life]) -> None:
    names = np.array(sorted(lives), np.int64)
    for group in ledger.layout.groups:
        space = ledger.spaces[group.space_idx]
        of_page, entry_of = notes.of_page[group.space_idx], notes.entry_of[group.space_idx]
        mine = np.isin(of_page, names) & ((space.state == 0) | (space.group == group.idx))
        for page in np.flatnonzero(mine):
            life, entry = lives[int(of_page[page])], entry_of[page : page + 1]
            if int(entry[0]) not in life.pages[group.idx]:
                _put(ledger, life, group.idx, entry, np.array([page]))


def _from_event(ledger: Ledger, of_row: I64, lives: Mapping[int, Life], last: Event) -> None:
    change = derive(ledger, last)
    for lists, places in ((change.joined, change.joined_at), (change.taken, change.taken_at)):
        if lists is None or places is None:
            continue
        for group, pages, at in zip(ledger.layout.groups, lists, places, strict=True):
            spots = indices(at)[: pages.size]
            for i, spot in enumerate(spots.tolist()):
                row, entry = divmod(spot, group.table_width)
                life = lives.get(int(of_row[row]))
                if life is not None:
                    _put(ledger, life, group.idx, np.array([entry]), pages[i : i + 1])


def _put(ledger: Ledger, life: Life, group: int, entries: Ints, pages: Ints) -> None:
    """The life has these pages, under the keys that they have."""
    keys = ledger.spaces[ledger.layout.groups[group].space_idx].key[pages].tolist()
    for entry, page, key in zip(entries.tolist(), pages.tolist(), keys, strict=True):
        life.pages[group][entry] = page
        if key:
            life.keys[group][entry] = key
