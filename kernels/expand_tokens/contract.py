"""`expand_tokens`: what it takes and does."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.checking import check_tensor
from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.expand_tokens.reference import expand_tokens_reference
from kvlife.kernels.table_checks import INTS, check_rows_table


def expand_tokens(
    table: Tensor, width: int, page_size: int, rows: Tensor, lens: Tensor, out: Tensor
) -> None:
    """Write the slots of positions [0, lens[i]) of rows[i] to out[i]; the rest of `out` stays.

    `table` int32 [rows * width], contiguous. `rows` and `lens` int32 or int64 [n], `out` int32
    [n, at least the longest], of any stride; what a longer length asks for beyond it is left out. A
    position without an entry gets slot 0. Raises `KernelError`.
    """
    check_rows_table("expand_tokens", table, width, page_size)
    device = table.device
    check_tensor("expand_tokens", "rows", rows, dtype=INTS, shape=(None,), device=device)
    num = rows.numel()
    check_tensor("expand_tokens", "lens", lens, dtype=INTS, shape=(num,), device=device)
    check_tensor("expand_tokens", "out", out, dtype=torch.int32, shape=(num, None), device=device)
    if not out.numel():
        return
    if uses_triton(table):
        # Triton is loaded where it runs, and nowhere else.
        from kvlife.kernels.expand_tokens.kernel import launch

        launch(table, width, page_size, rows, lens, out)
    else:
        expand_tokens_reference(table, width, page_size, rows, lens, out)
