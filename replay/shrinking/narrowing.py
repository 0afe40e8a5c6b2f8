"""The part of a faulty event that its evidence speaks of: some rows of a batch, some pages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.events import (
    Allocated,
    Committed,
    Event,
    Evicted,
    FieldKind,
    PageLists,
    RolledBack,
    StepDispatched,
    StepSettled,
    WindowEvicted,
)
from kvlife.invariants import Checker
from kvlife.ledger import Change, Ledger, derive
from kvlife.ledger.spans import indices
from kvlife.replay.history.touches import rows_naming
from kvlife.replay.shrinking.state import frozen
from kvlife.replay.shrinking.trial import map_fields, map_pages

I32 = npt.NDArray[np.int32]
Owned = tuple[dict[int, set[int]], ...]

_OF_ROWS = (Allocated, Committed, RolledBack, WindowEvicted, StepDispatched, StepSettled)


def single(
    ledger: Ledger, event: Event, change: Change, invariant: str
) -> tuple[Event, Mapping[str, object]] | None:
    """The event with one of its rows, or evicted pages, that is enough to break the invariant here.

    With the evidence against it; None where there is no such row, or only a post-check can tell.
    """
    checker = Checker(audit_every=None)
    for part in _singles(ledger, event, change):
        found = checker.guard(ledger, part, derive(ledger, part), ledger.next_seq)
        if found is not None and found.id == invariant:
            return part, found.evidence
    return None


def _singles(ledger: Ledger, event: Event, change: Change) -> Iterator[Event]:
    if isinstance(event, Evicted):
        for group, pages in enumerate(event.pages):
            for page in pages.tolist():
                yield attrs.evolve(event, pages=_only(event.pages, {page}, group))
    elif isinstance(event, _OF_ROWS):
        rows = _rows_of(event)
        owned = _owned(ledger, change, rows)
        for place in range(rows.size):
            yield only_rows(event, [place], owned)


def narrowed(ledger: Ledger, event: Event, change: Change, evidence: Mapping[str, object]) -> Event:
    """The event with only those of its rows, or of the pages it evicts, that the evidence names."""
    if isinstance(event, Evicted):
        named = _only(event.pages, set(_ints(evidence.get("pages"))))
        return attrs.evolve(event, pages=named) if any(map(len, named)) else event
    if not isinstance(event, _OF_ROWS):
        return event
    rows = _rows_of(event)
    speaks_of = {*rows_naming(ledger, change, evidence), *_ints(evidence.get("rows"))}
    kept = [i for i, row in enumerate(rows.tolist()) if row in speaks_of]
    return only_rows(event, kept, _owned(ledger, change, rows)) if kept else event


def _rows_of(event: Any) -> I32:  # Any: one of the classes above
    rows: I32 = event.drained if isinstance(event, StepSettled) else event.rows
    return rows


def _only(lists: PageLists, pages: Collection[int], group: int | None = None) -> PageLists:
    """These pages of one group, or of all."""
    return tuple(
        frozen(part[np.isin(part, list(pages))] if group in (None, idx) else part[:0])
        for idx, part in enumerate(lists)
    )


def _owned(ledger: Ledger, change: Change, rows: I32) -> Owned:
    """Per group, which places in the batch each page comes to, or leaves."""
    place_of = {row: place for place, row in enumerate(rows.tolist())}
    owned: Owned = tuple({} for _ in ledger.layout.groups)
    for group in ledger.layout.groups:
        moved = []
        if change.taken is not None and change.taken_at is not None:
            moved.append((change.taken[group.idx], indices(change.taken_at[group.idx])))
        if change.gone_at is not None:
            spots = indices(change.gone_at[group.idx])
            moved.append((ledger.tables[group.idx][spots], spots))
        for pages, spots in moved:
            for page, spot in zip(pages.tolist(), spots.tolist(), strict=False):
                place = place_of.get(spot // group.table_width)
                if place is not None:
                    owned[group.idx].setdefault(page, set()).add(place)
    return owned


def only_rows(event: Event, kept: list[int], owned: Owned) -> Event:
    """A batch cut to some places: the others' rows, lengths and pages are taken out.

    `owned` says per group at which places a page is; one that it does not know stays.
    """

    def some(array: I32) -> I32:
        return frozen(array[kept])

    def cursors(arrays: tuple[I32, ...] | None, _event: Event) -> tuple[I32, ...] | None:
        return None if arrays is None else tuple(map(some, arrays))

    def still(group: int, pages: I32) -> I32:
        places = owned[group]
        stays = [page not in places or bool(places[page] & set(kept)) for page in pages.tolist()]
        return pages[np.array(stays, np.bool_)]

    cut = map_fields(
        event,
        {
            FieldKind.ROWS: lambda rows, _event: some(rows),
            FieldKind.LENGTHS: lambda lengths, _event: some(lengths),
            FieldKind.CURSOR_ARRAYS: cursors,
        },
    )
    if isinstance(cut, RolledBack):
        links = cut.copies[np.isin(cut.copies[:, 1], cut.rows)]
        bare = map_pages(attrs.evolve(cut, copies=links[:0]), still)
        return map_fields(bare, {FieldKind.LINKS: lambda _none, _event: links})
    return map_pages(cut, still)


def _ints(value: object) -> list[int]:
    return [item for item in value if isinstance(item, int)] if isinstance(value, list) else []
