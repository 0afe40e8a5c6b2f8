"""A count of the whole state, made once for an audit: every row in use, every reference, pin."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.ledger import RowState
from kvlife.ledger.entries import rows_entries
from kvlife.ledger.spans import indices, spans_of

if TYPE_CHECKING:
    from kvlife.config import GroupLayout
    from kvlife.ledger import Ledger

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Index = npt.NDArray[np.intp]


class IndexPages(Protocol):
    """What an audit asks of a prefix index: the pages of a group that it can find."""

    def pages(self, group: int, /) -> npt.NDArray[np.int32]:
        """All pages of the group, each once, in any order."""


@attrs.frozen(eq=False)
class Asked:
    """The table entries of a group that lengths and cursors ask for, and the pages there.

    `missing` are entries without a page, or with one that the space does not have; `extra` are
    entries inside the rows' allocated lengths that have a page and should not.
    """

    group: GroupLayout
    at: Index
    pages: I32
    missing: Index
    extra: Index


class Census:
    """The state counted from its rows up; what a column says is held against it by the audits."""

    def __init__(
        self, ledger: Ledger, index: IndexPages | None = None, *, idle: bool = False
    ) -> None:
        """Nothing is counted until it is asked for; `idle` says that nothing should be held."""
        self.ledger = ledger
        self.index = index
        self.idle = idle

    @cached_property
    def live(self) -> Index:
        """Rows that are HELD or DRAINING."""
        return self.ledger.rows.in_use()

    @cached_property
    def held(self) -> Index:
        """Rows that are HELD."""
        return np.flatnonzero(self.ledger.rows.state == RowState.HELD)

    @cached_property
    def asked(self) -> tuple[Asked, ...]:
        """Per group, the entries that the live rows' lengths and cursors ask for."""
        allocated = self.ledger.rows.allocated[self.live]
        entries = rows_entries(self.ledger, self.live, np.zeros_like(allocated), allocated)
        found = []
        for group, at in zip(self.ledger.layout.groups, map(indices, entries), strict=True):
            table = self.ledger.tables[group.idx]
            pages = table[at]
            num_pages = self.ledger.spaces[group.space_idx].num_pages
            known = (pages > 0) & (pages < num_pages)
            extra = self._extra(group, at) if group.window is not None else at[:0]
            found.append(Asked(group, at[known], pages[known], at[~known], extra))
        return tuple(found)

    def _extra(self, group: GroupLayout, at: Index) -> Index:
        width = group.table_width
        high = np.clip(-(-self.ledger.rows.allocated[self.live] // group.page_size), 0, width)
        whole = spans_of(self.live * width, np.zeros_like(high), high)
        table = self.ledger.tables[group.idx]
        is_extra = np.zeros(table.size, np.bool_)
        is_extra[whole] = table[whole] != 0
        is_extra[at] = False
        return np.flatnonzero(is_extra)

    @cached_property
    def refs(self) -> tuple[I64, ...]:
        """Per page space, how many table entries name each page."""
        counts = [np.zeros(space.num_pages, np.int64) for space in self.ledger.spaces]
        for asked in self.asked:
            space_idx = asked.group.space_idx
            counts[space_idx] += np.bincount(asked.pages, minlength=counts[space_idx].size)
        return tuple(counts)

    @cached_property
    def pins(self) -> tuple[I64, ...]:
        """Per page space, how many pins and open steps hold each page."""
        ledger = self.ledger
        counts = [np.zeros(space.num_pages, np.int64) for space in ledger.spaces]
        pinned = [(pin.group, pin.pages) for pin in ledger.pins.values()]
        for opened in ledger.steps.values():
            pinned += opened.pinned
        for group_idx, pages in pinned:
            space_idx = ledger.layout.groups[group_idx].space_idx
            known = pages[pages < counts[space_idx].size]
            np.add.at(counts[space_idx], known, 1)
        return tuple(counts)
