"""The page-table entries that rows reference between two lengths, group by group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kvlife.ledger.spans import At, entries_in, span_of, spans_of, window_spans_of

if TYPE_CHECKING:
    from kvlife.config import GroupLayout
    from kvlife.ledger.ledger import Ledger

I32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]
Lens = Any  # Any: int32 and int64 arrays alike


def span_entries(
    group: GroupLayout, row: int, low_len: int, high_len: int, floor_len: int, cursor: int
) -> At:
    """Entries of one row's pages above `low_len` and up to `high_len` tokens in a group.

    In a window group only those of [0, floor) and from the cursor on; all lengths in tokens.
    """
    size, width = group.page_size, group.table_width
    base = row * width
    low = min(-(-max(low_len, 0) // size), width)
    high = max(low, min(-(-max(high_len, 0) // size), width))
    if group.window_idx is None:
        return slice(base + low, base + high)
    return span_of(base, low, high, -(-max(floor_len, 0) // size), max(cursor, 0) // size)


def row_group_entries(
    ledger: Ledger,
    group: GroupLayout,
    row: int,
    low_len: int,
    high_len: int,
    cursor: int | None = None,
) -> At:
    """One group's part of `row_entries`; `cursor` replaces the ledger's where given."""
    if group.window_idx is None:
        return span_entries(group, row, low_len, high_len, 0, 0)
    if cursor is None:
        cursor = int(ledger.rows.cursors[group.window_idx, row])
    return span_entries(group, row, low_len, high_len, int(ledger.rows.floor[row]), cursor)


def row_entries(ledger: Ledger, row: int, low_len: int, high_len: int) -> tuple[At, ...]:
    """Per group, the entries of the pages above `low_len` and up to `high_len` tokens."""
    return tuple(
        row_group_entries(ledger, group, row, low_len, high_len) for group in ledger.layout.groups
    )


def rows_entries(ledger: Ledger, index: Index, low_len: I32, high_len: I32) -> tuple[At, ...]:
    """As `row_entries` for many rows."""
    return tuple(
        group_entries(ledger, group, index, low_len, high_len) for group in ledger.layout.groups
    )


def group_entries(
    ledger: Ledger,
    group: GroupLayout,
    index: Index,
    low_len: I32,
    high_len: I32,
    cursor: I32 | None = None,
) -> At:
    """One group's part of `rows_entries`; `cursor` replaces the ledger's where given."""
    size, width = group.page_size, group.table_width
    low = entries_in(-(-low_len // size), width)
    high = entries_in(-(-high_len // size), width)
    bases = index * width
    if group.window_idx is None:
        return spans_of(bases, low, high)
    if cursor is None:
        cursor = ledger.rows.cursors[group.window_idx][index]
    floor = -(-ledger.rows.floor[index] // size)
    return window_spans_of(bases, low, high, np.maximum(floor, 0), np.maximum(cursor, 0) // size)


def touched_entries(group: GroupLayout, index: Index, low_len: Lens, high_len: Lens) -> Index:
    """Entries of the pages on which positions [low, high) of each row lie, referenced or not."""
    size, width = group.page_size, group.table_width
    low = entries_in(low_len // size, width)
    high = np.where(high_len > low_len, entries_in(-(-high_len // size), width), low)
    return spans_of(index * width, low, high)
