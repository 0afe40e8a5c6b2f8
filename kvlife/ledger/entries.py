"""The page-table entries that rows reference between two lengths, group by group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kvlife import transitions
from kvlife.ledger.spans import At, span_of, spans_of, window_spans_of

if TYPE_CHECKING:
    from kvlife.config import GroupLayout
    from kvlife.ledger.ledger import Ledger

I32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]
# One length for a single row, an array for many.
Lens = Any  # Any: int and int32 arrays share the arithmetic, and no protocol spells that


def span_entries(
    ledger: Ledger, group: GroupLayout, row: int, low: int, high: int, cursor: int | None = None
) -> At:
    """Positions of [low, high) pages of one row that it references in a group."""
    base = row * group.table_width
    high = max(low, min(high, group.table_width))
    if group.window_idx is None:
        return slice(base + low, base + high)
    size = group.page_size
    if cursor is None:
        cursor = int(ledger.rows.cursors[group.window_idx, row])
    floor = transitions.num_pages(int(ledger.rows.floor[row]), size)
    return span_of(base, low, high, max(floor, 0), max(cursor, 0) // size)


def row_entries(ledger: Ledger, row: int, low_len: int, high_len: int) -> tuple[At, ...]:
    """Per group, the entries of the pages above `low_len` and up to `high_len` tokens."""
    return tuple(
        span_entries(
            ledger,
            group,
            row,
            -(-max(low_len, 0) // group.page_size),
            -(-max(high_len, 0) // group.page_size),
        )
        for group in ledger.layout.groups
    )


def rows_entries(
    ledger: Ledger, index: Index, low_len: I32, high_len: I32, cursors: tuple[Lens, ...] | None
) -> tuple[At, ...]:
    """As `row_entries` for many rows; `cursors` replace the ledger's where given."""
    return tuple(
        group_entries(
            ledger,
            group,
            index,
            low_len,
            high_len,
            None if cursors is None or group.window_idx is None else cursors[group.window_idx],
        )
        for group in ledger.layout.groups
    )


def group_entries(
    ledger: Ledger, group: GroupLayout, index: Index, low_len: I32, high_len: I32, cursor: Lens
) -> At:
    """One group's part of `rows_entries`; `cursor` replaces the ledger's where given."""
    size, width = group.page_size, group.table_width
    low = np.clip(-(-low_len // size), 0, width)
    high = np.clip(-(-high_len // size), 0, width)
    bases = index * width
    if group.window_idx is None:
        return spans_of(bases, low, high)
    if cursor is None:
        cursor = ledger.rows.cursors[group.window_idx][index]
    floor = -(-ledger.rows.floor[index] // size)
    return window_spans_of(bases, low, high, np.maximum(floor, 0), np.maximum(cursor, 0) // size)
