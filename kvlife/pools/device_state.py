"""The device state: page tables, page columns and lengths on one device, a second ledger.

Kernels change it as events say, and nothing copies the ledger's columns into it but `load`, when
the pools are attached. All groups share one arena of page tables, and all page spaces one arena
of each page column:

    tables    | group 0: row 0, row 1, ... | group 1: row 0, row 1, ... |    int32 page ids
    state     | space 0: page 0, page 1, ... | space 1: page 0, ... |        int32, as PageState
    refs, pins  likewise
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import attrs
import numpy as np
import torch
from torch import Tensor

from kvlife.kernels.page_states import STATE_DTYPE
from kvlife.kernels.tables import TableGroup, describe
from kvlife.kernels.violations import Violations
from kvlife.ledger.spaces import PageState

if TYPE_CHECKING:
    from kvlife.config import Layout
    from kvlife.ledger import Ledger

# Bytes of a page's state, references and pins, of a table entry, and of a row's lengths.
_PAGE_BYTES, _ENTRY_BYTES, _LENGTH_BYTES = 12, 4, 4
LENGTHS = ("allocated", "committed", "protected", "floor")
PAGE_COLUMNS = ("state", "refs", "pins")


@attrs.frozen(eq=False)
class GroupViews:
    """One group's table and the page columns of its space, as views into the arenas."""

    idx: int
    table: Tensor
    state: Tensor
    refs: Tensor
    pins: Tensor


def state_bytes(layout: Layout) -> int:
    """Bytes that the device state of these pools takes."""
    entries = sum(layout.num_rows * group.table_width for group in layout.groups)
    pages = sum(space.num_pages for space in layout.spaces)
    lengths = layout.num_rows * (len(LENGTHS) + len(layout.window_groups))
    return entries * _ENTRY_BYTES + pages * _PAGE_BYTES + lengths * _LENGTH_BYTES


class DeviceState:
    """The tensors; `groups` are one group's views each, `described` what kernels read of them."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        """An empty state: every page FREE but the reserved ones, every row without pages."""
        self.device = device
        entries = sum(layout.num_rows * group.table_width for group in layout.groups)
        self.tables = self._zeros(entries)
        self.allocated, self.committed, self.protected, self.floor = (
            self._zeros(layout.num_rows) for _ in LENGTHS
        )
        self.cursors = self._zeros(len(layout.window_groups), layout.num_rows)
        self.violations = Violations.create(device)
        self._lay_out(layout)
        for start in self.page_starts:
            self.state[start] = PageState.RESERVED

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.int32, device=self.device)

    def _lay_out(self, layout: Layout) -> None:
        """Make page columns of the layout's sizes, and the views into all arenas."""
        sizes = [space.num_pages for space in layout.spaces]
        self.layout = layout
        self.page_starts = [0, *itertools.accumulate(sizes)][: len(sizes)]
        self.state = torch.zeros(sum(sizes), dtype=STATE_DTYPE, device=self.device)
        self.refs, self.pins = self._zeros(sum(sizes)), self._zeros(sum(sizes))
        widths = [layout.num_rows * group.table_width for group in layout.groups]
        starts = [0, *itertools.accumulate(widths)]
        self.described = describe(
            [
                TableGroup(
                    table_start=start,
                    table_width=group.table_width,
                    page_size=group.page_size,
                    page_start=self.page_starts[group.space_idx],
                    num_pages=sizes[group.space_idx],
                    window_idx=group.window_idx,
                )
                for start, group in zip(starts, layout.groups, strict=False)
            ],
            self.device,
        )
        self.groups = [
            GroupViews(
                group.idx,
                self.tables[start : start + width],
                *(self.page_column(name, group.space_idx) for name in PAGE_COLUMNS),
            )
            for start, width, group in zip(starts, widths, layout.groups, strict=False)
        ]

    def page_column(self, name: str, space_idx: int) -> Tensor:
        """The state, refs or pins of one space, as a view."""
        start = self.page_starts[space_idx]
        column: Tensor = getattr(self, name)
        return column[start : start + self.layout.spaces[space_idx].num_pages]

    def resize(self, layout: Layout) -> None:
        """Take the layout's numbers of pages; what a page has stays, and new pages are FREE."""
        before = {
            (name, space.idx): self.page_column(name, space.idx)
            for name in PAGE_COLUMNS
            for space in layout.spaces
        }
        self._lay_out(layout)
        for (name, space_idx), old in before.items():
            new = self.page_column(name, space_idx)
            kept = min(old.numel(), new.numel())
            new[:kept] = old[:kept]

    def load(self, ledger: Ledger) -> None:
        """Take the whole state of a ledger; for pools that are attached in the middle of a run."""
        for mine, theirs in self.beside(ledger).values():
            mine.copy_(torch.from_numpy(np.ascontiguousarray(theirs, np.int32)))

    def beside(self, ledger: Ledger) -> dict[str, tuple[Tensor, np.ndarray]]:
        """Each tensor with the ledger's array that it must equal, by the name that people read."""
        rows = ledger.rows
        pairs: dict[str, tuple[Tensor, np.ndarray]] = {}
        for group in ledger.layout.groups:
            table = (self.groups[group.idx].table, ledger.tables[group.idx])
            pairs[f"table of group {group.name!r}"] = table
        for space in ledger.layout.spaces:
            for name in PAGE_COLUMNS:
                column = getattr(ledger.spaces[space.idx], name)
                pairs[f"{name} of space {space.name!r}"] = (
                    self.page_column(name, space.idx),
                    column,
                )
        for name in LENGTHS:
            pairs[f"{name} lengths"] = (getattr(self, name), getattr(rows, name))
        for group in ledger.layout.window_groups:
            pairs[f"cursors of group {group.name!r}"] = (
                self.cursors[group.window_idx],
                rows.cursors[group.window_idx],
            )
        return pairs
