"""Where the page tables and pages of each cache group lie in the arenas that all groups share."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor

NUM_COLUMNS = 6


@attrs.frozen(kw_only=True)
class TableGroup:
    """One cache group's part of the arenas, in entries.

    Its table has `table_width` entries for each row, row after row, from `table_start` on. Its page
    space has `num_pages` pages (the reserved page 0 included) from `page_start` on in the arenas of
    page columns; groups that share a space have the same. `window_idx` is its row in `cursors`, or
    None where attention is full. `page_size` is in tokens.
    """

    table_start: int
    table_width: int
    page_size: int
    page_start: int
    num_pages: int
    window_idx: int | None = None


def describe(groups: Sequence[TableGroup], device: torch.device | str) -> Tensor:
    """The groups as kernels read them: int64 [groups, 6], a window of None as -1."""
    rows = [
        (
            group.table_start,
            group.table_width,
            group.page_size,
            group.page_start,
            group.num_pages,
            -1 if group.window_idx is None else group.window_idx,
        )
        for group in groups
    ]
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, NUM_COLUMNS).to(device)


def groups_in(groups: Tensor) -> list[TableGroup]:
    """The groups that a descriptor tells of; waits for the device."""
    return [
        TableGroup(
            table_start=start,
            table_width=width,
            page_size=size,
            page_start=first,
            num_pages=num_pages,
            window_idx=None if window < 0 else window,
        )
        for start, width, size, first, num_pages, window in groups.tolist()
    ]
