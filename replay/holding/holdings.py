"""Who holds what in a state, and since when as far as its columns say."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.config import GroupLayout, SpaceLayout
from kvlife.invariants.census import Census
from kvlife.ledger import Ledger, PageState, RowState
from kvlife.replay.holding.hosted import HostCount
from kvlife.replay.holding.lost import Lost

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]

# What a page is to somebody who looks for room; each page is one of these.
FREE = "free"
EVICTABLE = "cached, evictable"
REFERENCED = "cached, referenced"
LIVE = "live"
PINNED = "cached, pinned"
QUARANTINED = "quarantined"
DRAINING = "draining"
LOST = "lost"
KINDS = (FREE, EVICTABLE, REFERENCED, LIVE, DRAINING, PINNED, QUARANTINED, LOST)


@attrs.frozen(kw_only=True)
class PageCount:
    """Pages of one kind; how many of them a step in flight reads or writes, and a pin holds."""

    pages: int
    in_flight: int
    pinned: int


class Holdings:
    """A state counted by holder: rows in use, pins, steps, and the pages of each."""

    def __init__(self, ledger: Ledger) -> None:
        """Nothing is counted until it is asked for."""
        self.ledger = ledger
        self.census = Census(ledger)
        self.lost = Lost(ledger, self.census)

    @cached_property
    def rows(self) -> Index:
        """The rows that are HELD or DRAINING; the arrays by row stand in this order."""
        return self.census.live

    @cached_property
    def group_pages(self) -> tuple[I64, ...]:
        """Per group, how many pages each row references."""
        num_rows = self.ledger.layout.num_rows
        return tuple(
            np.bincount(asked.at // asked.group.table_width, minlength=num_rows)[self.rows]
            for asked in self.census.asked
        )

    @cached_property
    def pages(self) -> I64:
        """How many pages each row references, in all groups."""
        total: I64 = np.sum(self.group_pages, axis=0, dtype=np.int64)
        return total

    @cached_property
    def pages_alone(self) -> I64:
        """Pages of each row that nobody else holds: what its end would give back."""
        spaces = range(len(self.ledger.spaces))
        total: I64 = np.sum([self.by_row(idx, self.alone(idx)) for idx in spaces], axis=0)
        return total

    def alone(self, space_idx: int) -> Bools:
        """The pages of a space that no more than one row has, and no pin."""
        space = self.ledger.spaces[space_idx]
        alone: Bools = (space.refs <= 1) & (space.pins == 0)
        return alone

    def by_row(self, space_idx: int, chosen: Bools) -> I64:
        """How many of the chosen pages of a space each row references."""
        total = np.zeros(self.ledger.layout.num_rows, np.int64)
        for asked in self.census.asked:
            if asked.group.space_idx == space_idx:
                mine = asked.at[chosen[asked.pages]] // asked.group.table_width
                total += np.bincount(mine, minlength=total.size)
        return total[self.rows]

    @cached_property
    def since(self) -> I64:
        """By row, the seq at which it had its oldest page at the latest.

        A page says when it was touched last, so its holder may have it for longer.
        """
        since = self.ledger.rows.last_event.copy()
        for asked in self.census.asked:
            if asked.at.size:
                stamps = self.ledger.spaces[asked.group.space_idx].last_event[asked.pages]
                rows = asked.at // asked.group.table_width
                # The entries come row by row.
                starts = np.flatnonzero(np.diff(rows, prepend=-1))
                oldest = np.minimum.reduceat(stamps, starts).astype(np.int64)
                named = rows[starts]
                since[named] = np.minimum(since[named], oldest + self.ledger.seq_base)
        return since[self.rows]

    def order(self, sort: str) -> Index:
        """The places of the rows in `rows`, by pages, age, tokens or row."""
        tokens = -self.ledger.rows.allocated[self.rows].astype(np.int64)
        by = {"pages": -self.pages, "age": self.since, "tokens": tokens, "row": self.rows}
        return np.argsort(by[sort], kind="stable")

    @property
    def groups_by_space(self) -> Iterator[tuple[SpaceLayout, list[GroupLayout]]]:
        """The page spaces, each with the cache groups that take pages of it."""
        layout = self.ledger.layout
        for space in layout.spaces:
            yield space, [group for group in layout.groups if group.space_idx == space.idx]

    @cached_property
    def host(self) -> HostCount | None:
        """The host's pages by what they are; None without a host space."""
        hosted, lost = self.lost.hosted, self.lost.host_mask
        return None if hosted is None or lost is None else hosted.count(lost)

    def kinds(self, group_idx: int) -> dict[str, PageCount]:
        """The pages of a group by kind; FREE ones are the space's, whoever takes them."""
        group = self.ledger.layout.groups[group_idx]
        space = self.ledger.spaces[group.space_idx]
        kind = self._kind_of[group.space_idx].copy()
        kind[(space.group != group_idx) & (kind != KINDS.index(FREE))] = len(KINDS)
        return self._counted(group.space_idx, kind)

    def space_kinds(self, space_idx: int) -> dict[str, PageCount]:
        """The pages of a page space by kind, whichever of its groups took them."""
        return self._counted(space_idx, self._kind_of[space_idx].copy())

    def _counted(self, space_idx: int, kind: npt.NDArray[np.uint8]) -> dict[str, PageCount]:
        """The pages of each kind, given the kind of each page of a space; page 0 only if lost."""
        kind[0] = kind[0] if self.lost.masks[space_idx][0] else len(KINDS)
        flying, pinned = self._flying[space_idx], self.ledger.spaces[space_idx].pins > 0
        size = len(KINDS) + 1
        counts = (
            np.bincount(kind, minlength=size),
            np.bincount(kind[flying], minlength=size),
            np.bincount(kind[pinned], minlength=size),
        )
        return {
            name: PageCount(pages=int(pages), in_flight=int(in_flight), pinned=int(held))
            for name, pages, in_flight, held in zip(KINDS, *counts, strict=False)
        }

    @cached_property
    def _kind_of(self) -> tuple[npt.NDArray[np.uint8], ...]:
        """Per space, what each page is, as an index into KINDS."""
        held = self._of_rows(self.ledger.rows.state == RowState.HELD)
        kinds = []
        for space_idx, space in enumerate(self.ledger.spaces):
            refs, cached = self.census.refs[space_idx] > 0, space.state == PageState.CACHED
            kind = np.zeros(space.num_pages, np.uint8)
            for name, chosen in (
                (EVICTABLE, cached),
                (PINNED, cached & (space.pins > 0)),
                (REFERENCED, cached & refs),
                (LIVE, space.state == PageState.PRIVATE),
                (DRAINING, refs & ~held[space_idx]),
                (QUARANTINED, space.state == PageState.QUARANTINED),
                (LOST, self.lost.masks[space_idx]),
            ):
                kind[chosen] = KINDS.index(name)
            kinds.append(kind)
        return tuple(kinds)

    @cached_property
    def _flying(self) -> tuple[Bools, ...]:
        """Per space, the pages that a step in flight may read or write."""
        flying = self._of_rows(self.ledger.rows.in_flight > 0)
        for opened in self.ledger.steps.values():
            for group_idx, pages in opened.pinned:
                flying[self.ledger.layout.groups[group_idx].space_idx][pages] = True
        return flying

    def _of_rows(self, chosen: Bools) -> tuple[Bools, ...]:
        """Per space, the pages that one of these rows references."""
        masks = tuple(np.zeros(space.num_pages, np.bool_) for space in self.ledger.spaces)
        for asked in self.census.asked:
            mine = chosen[asked.at // asked.group.table_width]
            masks[asked.group.space_idx][asked.pages[mine]] = True
        return masks
