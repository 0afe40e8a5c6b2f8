"""`decode_step` in Triton: a row in each lane, through all groups."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kvlife.kernels.decode_step.arenas import Arenas
from kvlife.kernels.dispatch import run_kernel
from kvlife.kernels.page_moves_kernel import OUTSIDE, is_inside, take
from kvlife.kernels.violations import ViolationCode
from kvlife.kernels.violations_kernel import report

# Few rows a program, so that a batch of a thousand spreads over many multiprocessors; but a row for
# each thread of AMD's warps of 64 too, since a thread that shared its row could read a new length.
BLOCK, NUM_WARPS = 128, 2
PAGE_MISSING = tl.constexpr(int(ViolationCode.PAGE_MISSING))
PAGE_UNASKED = tl.constexpr(int(ViolationCode.PAGE_UNASKED))
LENGTH_DISAGREES = tl.constexpr(int(ViolationCode.LENGTH_DISAGREES))


@triton.jit
def step_in_group(tables, tables_len, state, refs, column, row, old, new, exists, used):
    """One group's part of a step, by its `column` of the descriptor: slot, code, page, entry."""
    table_start = tl.load(column)
    width = tl.load(column + 1)
    size = tl.load(column + 2).to(tl.int32)
    page_start = tl.load(column + 3)
    num_pages = tl.load(column + 4)
    idx = old // size
    offset = old - idx * size
    where = row * width + tl.minimum(tl.maximum(idx, 0), width - 1)
    spot = tables + table_start + where
    fits = used & (old >= 0) & (idx < width) & is_inside(table_start + where, tables_len)
    crossing = fits & (offset == 0)
    given = exists & (new != 0)
    held = given & is_inside(new, num_pages)
    code = take(state + page_start, refs + page_start, new, held)
    bound = tl.where(held, new, 0)
    tl.store(spot, bound, mask=crossing)
    page = tl.where(crossing, bound, tl.load(spot, mask=fits & ~crossing, other=0))
    strange = ~is_inside(page, num_pages)
    slot = tl.where(fits & ~strange, page * size.to(tl.int64) + offset, 0).to(tl.int32)
    code = tl.where((code == 0) & given & ~crossing, PAGE_UNASKED, code)
    code = tl.where((code == 0) & fits & (page == 0), PAGE_MISSING, code)
    code = tl.where((code == 0) & used & ~fits, LENGTH_DISAGREES, code)
    code = tl.where((given & ~held) | (fits & strange), OUTSIDE, code)
    return slot, code, tl.where(given, new, page), where


@triton.jit(do_not_specialize=["n"])
def decode_step_kernel(
    tables,
    groups,
    state,
    refs,
    allocated,
    rows,
    new_pages,
    slots_out,
    count,
    entries,
    capacity,
    seq_at,
    n,
    num_groups,
    num_rows,
    tables_len,
    rows_stride,
    pages_group_stride: tl.int64,
    pages_stride,
    slots_group_stride: tl.int64,
    slots_stride,
    BLOCK: tl.constexpr,
):
    """See `decode_step`; `rows`, `new_pages` and `slots_out` have strides."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = lane < n
    seq = tl.load(seq_at)
    row = tl.load(rows + lane * rows_stride, mask=live, other=0).to(tl.int64)
    exists = live & is_inside(row, num_rows)
    no_page = tl.full([BLOCK], -1, tl.int64)
    report(count, entries, capacity, OUTSIDE, 0, no_page, row, seq, live & ~exists)
    used = exists & (row != 0)
    old = tl.load(allocated + row, mask=used, other=0)
    tl.store(allocated + row, old + 1, mask=used)
    for group in range(num_groups):
        new = tl.load(
            new_pages + group * pages_group_stride + lane * pages_stride, mask=exists, other=0
        )
        column = groups + group * 6
        slot, code, page, where = step_in_group(
            tables, tables_len, state, refs, column, row, old, new, exists, used
        )
        tl.store(slots_out + group * slots_group_stride + lane * slots_stride, slot, mask=live)
        report(count, entries, capacity, code, group, page, where, seq, code != 0)


def launch(arenas: Arenas, rows: Tensor, new_pages: Tensor, slots_out: Tensor, seq: Tensor) -> None:
    """One launch; nothing is allocated, and nothing waits."""
    num = rows.numel()
    run_kernel(
        decode_step_kernel,
        (triton.cdiv(num, BLOCK),),
        arenas.tables,
        arenas.groups,
        arenas.state,
        arenas.refs,
        arenas.allocated,
        rows,
        new_pages,
        slots_out,
        arenas.violations.count,
        arenas.violations.entries,
        arenas.violations.capacity,
        seq,
        num,
        arenas.groups.shape[0],
        arenas.allocated.numel(),
        arenas.tables.numel(),
        rows.stride(0),
        *new_pages.stride(),
        *slots_out.stride(),
        BLOCK=BLOCK,
        num_warps=NUM_WARPS,
    )
