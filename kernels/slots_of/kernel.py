"""`slots_of` in Triton: a slot in each lane, its row found by bisection of the offsets."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvlife.kernels.dispatch import run_kernel
from kvlife.kernels.slots_kernel import slots_at

BLOCK = 256


@triton.jit(do_not_specialize=["n", "total", "halvings"])
def slots_of_kernel(
    table,
    rows,
    low,
    high,
    offsets,
    slots,
    n,
    total,
    halvings,
    num_rows,
    width,
    page_size,
    rows_stride,
    low_stride,
    high_stride,
    offsets_stride,
    BLOCK: tl.constexpr,
):
    """See `slots_of`; `halvings` is the number of bits of n."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = lane < total
    # The last range that starts at or before the slot: first <= it < end, always.
    first = tl.zeros([BLOCK], tl.int64)
    end = tl.zeros([BLOCK], tl.int64) + n
    for _ in range(halvings):
        middle = (first + end) // 2
        starts = tl.load(offsets + middle * offsets_stride, mask=live, other=0)
        first = tl.where(starts <= lane, middle, first)
        end = tl.where(starts <= lane, end, middle)
    row = tl.load(rows + first * rows_stride, mask=live, other=0).to(tl.int64)
    begin = tl.load(offsets + first * offsets_stride, mask=live, other=0)
    position = tl.load(low + first * low_stride, mask=live, other=0) + (lane - begin)
    stop = tl.load(high + first * high_stride, mask=live, other=0)
    found = slots_at(table, num_rows, width, page_size, row, position, live & (position < stop))
    tl.store(slots + lane, found, mask=live)


def launch(
    table: Tensor,
    width: int,
    page_size: int,
    rows: Tensor,
    low: Tensor,
    high: Tensor,
    offsets: Tensor,
    total: int,
) -> Tensor:
    """One launch over the slots."""
    if not rows.numel():
        return torch.zeros(total, dtype=torch.int32, device=table.device)
    slots = torch.empty(total, dtype=torch.int32, device=table.device)
    run_kernel(
        slots_of_kernel,
        (triton.cdiv(total, BLOCK),),
        table,
        rows,
        low,
        high,
        offsets,
        slots,
        rows.numel(),
        total,
        rows.numel().bit_length(),
        table.numel() // width,
        width,
        page_size,
        rows.stride(0),
        low.stride(0),
        high.stride(0),
        offsets.stride(0),
        BLOCK=BLOCK,
    )
    return slots
