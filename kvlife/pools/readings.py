"""Which pages an event lets go, evicts, matches, copies or pins, and which of them it frees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.events import Evicted, Pinned, Protected, RolledBack, StepSettled, Unpinned
from kvlife.ledger import PageState
from kvlife.ledger.spans import indices

if TYPE_CHECKING:
    from kvlife.events import Event, PageLists
    from kvlife.ledger import Change, Ledger
    from kvlife.ledger.spans import At

I32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]


@attrs.frozen(eq=False)
class Reading:
    """Pages of one group, what an event does with them, and the rows concerned where it says."""

    group: int
    pages: I32
    what: str
    rows: Index | None = None


class PageReadings:
    """Tells the readings of one event after another, in the order of the log.

    The ledger has applied the event, and the device has not: what the pages hold is still there.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        # Pages whose rows are gone, and that something in flight still holds.
        self._parted: list[tuple[int, I32]] = []

    def of(self, event: Event, change: Change) -> list[Reading]:
        """What the event reads; a page may stand twice."""
        found = list(self._listed("let go", change.gone, change.gone_at))
        found += self._listed("matched", change.joined, change.joined_at)
        found += self._named(event)
        if change.saved is not None:
            groups, pages = change.saved.groups, change.saved.pages
            found += [
                Reading(group, pages[groups == group], "copied to the host")
                for group in np.unique(groups).tolist()
            ]
        if isinstance(event, StepSettled | Unpinned):
            found += self._freed_at_last()
        self._note_parted(found)
        return found

    def taken(self, event: Event, change: Change) -> Iterator[Reading]:
        """The pages that were FREE before the event, and are rows' own behind it."""
        yield from self._listed("taken", change.taken, change.taken_at)
        if isinstance(event, RolledBack):
            for group in np.unique(event.copies[:, 0]).tolist():
                links = event.copies[event.copies[:, 0] == group]
                yield Reading(group, links[:, 3].copy(), "taken", links[:, 1].astype(np.intp))

    def freed(self, found: list[Reading]) -> Iterator[tuple[int, I32]]:
        """Those of these pages that are FREE behind the event, by group."""
        for reading in found:
            pages = self._in_state(reading.group, reading.pages, PageState.FREE)
            if pages.size:
                yield reading.group, pages

    def _listed(
        self, what: str, lists: PageLists | None, at: tuple[At, ...] | None
    ) -> Iterator[Reading]:
        for group, pages in zip(self._ledger.layout.groups, lists or (), strict=False):
            if pages.size:
                rows = None if at is None else indices(at[group.idx]) // group.table_width
                yield Reading(group.idx, pages, what, rows)

    def _named(self, event: Event) -> Iterator[Reading]:
        if isinstance(event, Evicted):
            yield from self._listed("evicted", event.pages, None)
        elif isinstance(event, Pinned):
            yield Reading(event.group, event.pages, "pinned")
        elif isinstance(event, Unpinned):
            yield Reading(event.group, event.pages, "unpinned")
        elif isinstance(event, Protected):
            rows = np.array([event.row], np.intp)
            for group in np.unique(event.rebinds[:, 0]).tolist():
                links = event.rebinds[event.rebinds[:, 0] == group]
                each = np.broadcast_to(rows, len(links))
                yield Reading(group, links[:, 2].copy(), "let go for another", each)
                yield Reading(group, links[:, 3].copy(), "matched", each)
        elif isinstance(event, RolledBack):
            for group in np.unique(event.copies[:, 0]).tolist():
                links = event.copies[event.copies[:, 0] == group]
                yield Reading(group, links[:, 2].copy(), "copied", links[:, 1].astype(np.intp))

    def _freed_at_last(self) -> Iterator[Reading]:
        for group, pages in self._parted:
            freed = self._in_state(group, pages, PageState.FREE)
            if freed.size:
                yield Reading(group, freed, "freed with its last pin")

    def _note_parted(self, found: list[Reading]) -> None:
        """A page that is QUARANTINED behind the event is freed later, by one that need not name it.

        One that is not any more was freed; it may have been taken again since.
        """
        listed = [*self._parted, *((reading.group, reading.pages) for reading in found)]
        parted = [
            (group, self._in_state(group, pages, PageState.QUARANTINED)) for group, pages in listed
        ]
        self._parted = [
            (group, np.unique(np.concatenate([pages for of, pages in parted if of == group])))
            for group in sorted({group for group, pages in parted if pages.size})
        ]

    def _in_state(self, group: int, pages: I32, state: PageState) -> I32:
        space = self._ledger.spaces[self._ledger.layout.groups[group].space_idx]
        pages = pages[pages < space.num_pages]
        chosen: I32 = pages[space.state[pages] == state]
        return chosen
