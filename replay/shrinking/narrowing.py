"""The part of a faulty event that its evidence speaks of: some rows of a batch, some pages."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.events import (
    Allocated,
    Committed,
    Event,
    Evicted,
    FieldKind,
    RolledBack,
    StepDispatched,
    StepSettled,
    WindowEvicted,
)
from kvlife.ledger import Change, Ledger
from kvlife.ledger.spans import indices
from kvlife.replay.shrinking.state import frozen
from kvlife.replay.shrinking.trial import map_fields, map_pages
from kvlife.replay.touches import rows_naming

I32 = npt.NDArray[np.int32]
Owned = tuple[dict[int, set[int]], ...]

_OF_ROWS = (Allocated, Committed, RolledBack, WindowEvicted, StepDispatched, StepSettled)


def narrowed(ledger: Ledger, event: Event, change: Change, evidence: Mapping[str, object]) -> Event:
    """The event with only those of its rows, or of the pages it evicts, that the evidence names."""
    pages = set(_ints(evidence.get("pages")))
    if isinstance(event, Evicted):
        named = tuple(frozen(part[np.isin(part, list(pages))]) for part in event.pages)
        return attrs.evolve(event, pages=named) if any(map(len, named)) else event
    if not isinstance(event, _OF_ROWS):
        return event
    rows = event.drained if isinstance(event, StepSettled) else event.rows
    speaks_of = {*rows_naming(ledger, change, evidence), *_ints(evidence.get("rows"))}
    kept = [i for i, row in enumerate(rows.tolist()) if row in speaks_of]
    return only_rows(event, kept or [0], _owned(ledger, change, rows)) if rows.size else event


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
