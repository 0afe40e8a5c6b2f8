"""What an `Allocated` means for this state: the hot path of every decode step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvlife.ledger.change import Change
from kvlife.ledger.entries import group_entries, row_group_entries
from kvlife.ledger.spans import NOWHERE, At, entries_in, spans_of

if TYPE_CHECKING:
    from kvlife.config import GroupLayout
    from kvlife.ledger.lane import Lane
    from kvlife.ledger.ledger import Ledger

I32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]


def derive_allocated(
    ledger: Ledger,
    index: Index,
    allocated_len: I32,
    evicted_len: tuple[I32, ...] | None,
) -> Change:
    """The change of an `Allocated` before its pages are chosen."""
    lane = ledger.rows.lane(index)
    old = lane.allocated
    if index.size == 1:
        return _derive_one_allocated(ledger, index, lane, allocated_len, evicted_len)
    change = Change()
    change.index, change.allocated, change.old_allocated = index, allocated_len, old
    change.cursors = evicted_len
    change.num_pages = {}
    at: list[At] = []
    for group in ledger.layout.groups:
        cursor = None
        if group.window_idx is None:
            at.append(_allocated_entries(ledger, group, lane, change))
        else:
            if evicted_len is not None:
                cursor = evicted_len[group.window_idx]
            at.append(group_entries(ledger, group, index, old, allocated_len, cursor))
    change.taken_at = tuple(at)
    return change


def _derive_one_allocated(
    ledger: Ledger,
    index: Index,
    lane: Lane,
    allocated_len: I32,
    evicted_len: tuple[I32, ...] | None,
) -> Change:
    """As `derive_allocated` for one row, whose entries lie side by side."""
    row, low_len, high_len = int(index[0]), int(lane.allocated[0]), int(allocated_len[0])
    at = []
    for group in ledger.layout.groups:
        cursor = None
        if evicted_len is not None and group.window_idx is not None:
            cursor = int(evicted_len[group.window_idx][0])
        at.append(row_group_entries(ledger, group, row, low_len, high_len, cursor))
    return Change(
        index=index,
        allocated=allocated_len,
        old_allocated=lane.allocated,
        cursors=evicted_len,
        taken_at=tuple(at),
    )


def _allocated_entries(ledger: Ledger, group: GroupLayout, lane: Lane, change: Change) -> At:
    """New entries of a full-attention group; the case of at most one page a row needs no repeat."""
    measure = ledger.measures[group.idx]
    assert change.num_pages is not None  # derive_allocated made it
    low = lane.num_pages.get(group.idx)
    if low is None:
        low = measure.pages_of(change.old_allocated)
    high = change.num_pages[group.idx] = measure.pages_of(change.allocated)
    crossing = (high > low).nonzero()[0]
    if not crossing.size:
        return NOWHERE
    bases = ledger.bases_of(lane.index, group.table_width)
    first, ends = low.take(crossing), high.take(crossing)
    # A faulty length, negative or beyond the row, must not reach into another row's entries.
    if (ends - first).tobytes() == ledger.ones_bytes(crossing.size) and (
        1 not in (first.view(np.uint32) >= measure.table_width).tobytes()
    ):
        if group.idx == ledger.layout.base:
            change.crossing = crossing
        return bases.take(crossing) + first
    width = group.table_width
    return spans_of(bases, entries_in(low, width), entries_in(high, width))
