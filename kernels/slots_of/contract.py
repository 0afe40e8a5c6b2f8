"""`slots_of`: what it takes and does."""

from __future__ import annotations

from torch import Tensor


def slots_of(
    table: Tensor,
    width: int,
    page_size: int,
    rows: Tensor,
    low: Tensor,
    high: Tensor,
    offsets: Tensor,
    *,
    total: int,
) -> Tensor:
    """The slots of positions [low, high) of each row, one row after the other: int32 [total].

    `table` int32 [rows * width], contiguous. `rows`, `low`, `high` int32 or int64 [n]; `offsets`
    int64 [n + 1] are the exclusive sums of high - low, and `total` the last of them. A position
    without an entry, or whose entry is 0, lies on the reserved page 0. Raises `KernelError`.
    """
    raise NotImplementedError
