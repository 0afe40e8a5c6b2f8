"""What an allocator's books show and the facts told so far do not account for, as facts.

None of these can be true, so the observer refuses each: a page in the free list twice is told as
an eviction of a page that is free, one that a request still has as a roll-back that keeps every
token, one that is neither free nor anybody's as an allocation for no token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvlife.events import Allocated, Event, Evicted, RolledBack
from kvlife.events.arrays import NO_LINKS, ints
from kvlife.ledger import PageState

if TYPE_CHECKING:
    from kvlife.ledger import Ledger
    from kvlife.testing.books import Books


def facts_of_disagreement(ledger: Ledger, books: Books, rid: str | None) -> list[Event]:
    """Facts that say where books and ledger part; `rid` is whom the last verb was about."""
    twice = sorted(page for page, num in books.free.items() if num > 1)
    if twice:
        return [Evicted("pressure", (ints(twice),))]
    return [
        *_free_and_held(ledger, books),
        *_lost(ledger, books, rid),
        *_other_tables(ledger, books),
    ]


def _free_and_held(ledger: Ledger, books: Books) -> list[Event]:
    facts: list[Event] = []
    for row in ledger.requests.values():
        held = ledger.pages_of(row, 0).tolist()
        pages = [page for page in held if books.free[page]]
        if pages:
            allocated, committed = ledger.rows.allocated[row], ledger.rows.committed[row]
            facts.append(
                RolledBack(
                    ints([row]),
                    ints([allocated]),
                    ints([committed]),
                    (ints(pages),),
                    NO_LINKS,
                )
            )
    return facts


def _lost(ledger: Ledger, books: Books, rid: str | None) -> list[Event]:
    free = np.flatnonzero(ledger.spaces[0].state == PageState.FREE).tolist()
    pages = [page for page in free if not books.free[page]]
    if not pages:
        return []
    rows = [ledger.requests[rid]] if rid in ledger.requests else []
    return [_taken_for_nothing(ledger, rows, pages)]


def _other_tables(ledger: Ledger, books: Books) -> list[Event]:
    facts: list[Event] = []
    for rid, row in ledger.requests.items():
        known, shown = ledger.pages_of(row, 0).tolist(), books.tables[rid]
        if known != shown:
            kept = sum(1 for pair in zip(known, shown, strict=False) if len(set(pair)) == 1)
            other = [page for idx, page in enumerate(shown) if known[idx : idx + 1] != [page]]
            facts.append(_taken_for_nothing(ledger, [row], other or known[kept:]))
    return facts


def _taken_for_nothing(ledger: Ledger, rows: list[int], pages: list[int]) -> Event:
    lens = [int(ledger.rows.allocated[row]) for row in rows]
    return Allocated(ints(rows), ints(lens), (ints(pages),))
