"""`slots_of`: what it takes and does."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.checking import check_tensor, refuse
from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.slots_of.reference import slots_of_reference
from kvlife.kernels.table_checks import INTS, check_rows_table, is_count


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
    without an entry, or whose entry is 0, lies on the reserved page 0. Where `total` and the
    lengths disagree, what no range covers is slot 0. Raises `KernelError`.
    """
    check_rows_table("slots_of", table, width, page_size)
    device = table.device
    check_tensor("slots_of", "rows", rows, dtype=INTS, shape=(None,), device=device)
    num = rows.numel()
    for name, lengths in (("low", low), ("high", high)):
        check_tensor("slots_of", name, lengths, dtype=INTS, shape=(num,), device=device)
    check_tensor("slots_of", "offsets", offsets, dtype=torch.int64, shape=(num + 1,), device=device)
    if not is_count(total):
        case = "a total is a whole number, and not negative"
        refuse("slots_of", f"{total!r} slots", case, "give the last offset")
    if not total:
        return torch.empty(0, dtype=torch.int32, device=device)
    if uses_triton(table):
        # Triton is loaded where it runs, and nowhere else.
        from kvlife.kernels.slots_of.kernel import launch

        return launch(table, width, page_size, rows, low, high, offsets, total)
    return slots_of_reference(table, width, page_size, rows, low, high, offsets, total)
