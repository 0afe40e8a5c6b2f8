"""`expand_tokens` in Triton: a stretch of one row's positions in each program."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kvlife.kernels.dispatch import run_kernel
from kvlife.kernels.slots_kernel import slots_at

BLOCK = 1024


@triton.jit
def expand_tokens_kernel(
    table,
    rows,
    lens,
    out,
    num_rows,
    width,
    page_size,
    num_cols,
    rows_stride,
    lens_stride,
    out_row_stride,
    out_col_stride,
    BLOCK: tl.constexpr,
):
    """See `expand_tokens`; programs are [rows, stretches]."""
    nth = tl.program_id(0).to(tl.int64)
    position = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows + nth * rows_stride).to(tl.int64)
    stop = tl.minimum(tl.load(lens + nth * lens_stride), num_cols)
    live = position < stop
    slots = slots_at(table, num_rows, width, page_size, row, position, live)
    target = out + nth * out_row_stride + position * out_col_stride
    # Without a mask the slots of a whole block leave in stores of 16 bytes.
    if tl.program_id(1) * BLOCK + BLOCK <= stop:
        tl.store(target, slots)
    else:
        tl.store(target, slots, mask=live)


def launch(
    table: Tensor, width: int, page_size: int, rows: Tensor, lens: Tensor, out: Tensor
) -> None:
    """One launch over rows and stretches of positions."""
    num, num_cols = out.shape
    run_kernel(
        expand_tokens_kernel,
        (num, triton.cdiv(num_cols, BLOCK)),
        table,
        rows,
        lens,
        out,
        table.numel() // width,
        width,
        page_size,
        num_cols,
        rows.stride(0),
        lens.stride(0),
        out.stride(0),
        out.stride(1),
        BLOCK=BLOCK,
    )
