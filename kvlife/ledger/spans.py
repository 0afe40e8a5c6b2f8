"""Which table entries a row references: positions in a flattened page table, without loops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]

# Positions in a flattened page table: a slice where one row's entries lie side by side.
At = slice | Index

NOWHERE = slice(0, 0)


def entries_in(pages: I32, width: int) -> I32:
    """Numbers of pages, held to a table of `width` entries; as `numpy.clip`, in half the time."""
    held: I32 = np.minimum(np.maximum(pages, 0), width)
    return held


def num_at(at: At) -> int:
    """How many positions."""
    return at.stop - at.start if isinstance(at, slice) else at.size


def indices(at: At) -> Index:
    """The positions as an index array."""
    return np.arange(at.start, at.stop) if isinstance(at, slice) else at


def span_of(base: int, low: int, high: int, floor: int, cursor: int) -> At:
    """Positions of one row's entries in [low, high) that it references.

    A row references the entries below `floor` and from `cursor` on, all in pages:

        low ... min(floor, cursor) ... cursor ... high
        [   referenced   )  [  gone  )  [  referenced )
    """
    split = min(floor, cursor)
    first_high = min(high, split)
    second_low = max(low, cursor)
    if first_high <= low:
        return slice(base + second_low, base + max(high, second_low))
    if second_low <= first_high:
        return slice(base + low, base + high)
    if high <= second_low:
        return slice(base + low, base + first_high)
    return np.concatenate(
        (
            np.arange(base + low, base + first_high),
            np.arange(base + second_low, base + high),
        )
    )


def spans_of(bases: Index, low: I32, high: I32) -> Index:
    """Positions of [low, high) of each row, in row order; `bases` are the rows' first positions."""
    counts = np.maximum(high - low, 0)
    total = int(counts.sum())
    if total == 0:
        return np.empty(0, np.intp)
    ends = np.cumsum(counts)
    starts = bases + low - (ends - counts)
    return np.repeat(starts, counts) + np.arange(total)


def window_spans_of(bases: Index, low: I32, high: I32, floor: I32, cursor: I32) -> Index:
    """As `spans_of`, for rows that reference only what lies below `floor` or from `cursor` on."""
    split = np.minimum(floor, cursor)
    if not split.any():
        return spans_of(bases, np.maximum(low, cursor), high)
    lows = np.stack((low, np.maximum(np.maximum(low, cursor), np.minimum(low, split))), axis=1)
    highs = np.stack((np.minimum(high, split), high), axis=1)
    return spans_of(np.repeat(bases, 2), lows.ravel(), highs.ravel())
