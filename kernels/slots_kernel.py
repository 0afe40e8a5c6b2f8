"""For Triton kernels: the slot of a position of a row, by the page table."""

import triton
import triton.language as tl


@triton.jit
def slots_at(table, num_rows, width, page_size, row, position, live):
    """Slots of positions, a row and a position (int64) in each lane; 0 where there is no entry."""
    idx = position // page_size
    there = live & (position >= 0) & (idx < width) & (row >= 0) & (row < num_rows)
    page = tl.load(table + row * width + idx, mask=there, other=0)
    slot = page.to(tl.int64) * page_size + position % page_size
    return tl.where(there, slot, 0).to(tl.int32)
