"""`expand_tokens`: what it takes and does."""

from __future__ import annotations

from torch import Tensor


def expand_tokens(
    table: Tensor, width: int, page_size: int, rows: Tensor, lens: Tensor, out: Tensor
) -> None:
    """Write the slots of positions [0, lens[i]) of rows[i] to out[i]; the rest of `out` stays.

    `table` int32 [rows * width], contiguous. `rows` and `lens` int32 or int64 [n], `out` int32
    [n, at least the longest], of any stride. Raises `KernelError`.
    """
    raise NotImplementedError
