"""A program: the sound events that lead up to a faulty one, in pieces that can be taken away.

A batch is read as one event for each of its rows. Pages are not kept with the events but by life
and table index, so that an event that goes does not take the pages of later ones along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from kvlife.config import PoolConfig
from kvlife.events import Event
from kvlife.ledger import Ledger, PageState, derive
from kvlife.replay.shrinking.ending import at_end
from kvlife.replay.shrinking.lives import Life, LifeNotes
from kvlife.replay.shrinking.naming import host_pages_named, pages_taken
from kvlife.replay.shrinking.reading import Piece, Reading


@attrs.frozen(eq=False, kw_only=True)
class Program:
    """Pieces in order, the lives they name, and last the faulty event, as it was recorded.

    `left_free` are the pages, by space, that it takes and finds FREE: no life may have them then,
    and `host_left_free` the host pages that it names and finds FREE. `host_keepers` are the waiting
    requests that keep the others: nobody else may have those.
    """

    config: PoolConfig
    pieces: tuple[Piece, ...]
    lives: Mapping[int, Life]
    last: Piece
    left_free: tuple[frozenset[int], ...]
    host_left_free: frozenset[int]
    host_keepers: Mapping[int, str]

    @classmethod
    def of(cls, config: PoolConfig, events: Iterable[Event], last: Event) -> Program:
        """The program of sound events and a faulty one behind them."""
        ledger = Ledger(config)
        reading = Reading(ledger.layout)
        notes = LifeNotes(ledger.layout, reading.lives)
        for seq, event in enumerate(events):
            change = derive(ledger, event)
            reading.see(event, seq)
            notes.see(ledger, event, change, seq)
            ledger.apply(event, seq, 0, change)
        return cls.behind(ledger, notes, reading, last)

    @classmethod
    def behind(cls, ledger: Ledger, notes: LifeNotes, reading: Reading, last: Event) -> Program:
        """The program of what was read, with the state and the notes behind it."""
        piece, lives = at_end(ledger, notes, reading, last)
        return cls(
            config=ledger.config,
            pieces=tuple(reading.pieces),
            lives=lives,
            last=piece,
            left_free=_left_free(ledger, last),
            host_left_free=_host_left_free(ledger, last),
            host_keepers=_host_keepers(ledger, last),
        )


def _left_free(ledger: Ledger, last: Event) -> tuple[frozenset[int], ...]:
    found: list[set[int]] = [set() for _ in ledger.spaces]
    for group, pages in pages_taken(last):
        space_idx = ledger.layout.groups[group].space_idx
        free = ledger.spaces[space_idx].state[pages] == PageState.FREE
        found[space_idx].update(pages[free].tolist())
    return tuple(map(frozenset, found))


def _host_left_free(ledger: Ledger, last: Event) -> frozenset[int]:
    if ledger.host is None:
        return frozenset()
    pages = host_pages_named(last)
    return frozenset(pages[ledger.host.state[pages] == PageState.FREE].tolist())


def _host_keepers(ledger: Ledger, last: Event) -> dict[int, str]:
    named = set(host_pages_named(last).tolist())
    return {
        page: rid
        for rid, waiting in ledger.waiting.items()
        if waiting.backup is not None
        for page in named.intersection(waiting.backup.tolist())
    }
