"""For Triton kernels: a program's tiles, from the table of `page_tiles.py`."""

import triton
import triton.language as tl

from kvlife.kernels.violations import ViolationCode
from kvlife.kernels.violations_kernel import report

OUTSIDE = tl.constexpr(int(ViolationCode.OUTSIDE))


@triton.jit
def tiles_at(table, num_tiles, block, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Start, page stride, place and size of the tiles of a block, in words, and their lanes.

    With one row the four are numbers and the lanes [COLS], so that addresses stay out of vector
    registers; else they are [ROWS, 1], the lanes [1, COLS], and tiles beyond the table have size 0.
    """
    if ROWS == 1:
        column = table + block
        start = tl.load(column)
        stride = tl.load(column + num_tiles)
        place = tl.load(column + 2 * num_tiles)
        size = tl.load(column + 3 * num_tiles)
        lanes = tl.arange(0, COLS)
    else:
        tile = (block * ROWS + tl.arange(0, ROWS))[:, None]
        there = tile < num_tiles
        column = table + tile
        start = tl.load(column, mask=there, other=0)
        stride = tl.load(column + num_tiles, mask=there, other=0)
        place = tl.load(column + 2 * num_tiles, mask=there, other=0)
        size = tl.load(column + 3 * num_tiles, mask=there, other=0)
        lanes = tl.arange(0, COLS)[None, :]
    return start, stride, place, size, lanes


@triton.jit
def report_page(count, entries, capacity, group, seq, code, page, where, amiss):
    """Report a page that an operation left alone; all but the buffer's pointers are numbers."""
    if amiss:
        lane = tl.arange(0, 1)
        report(count, entries, capacity, code, group, lane + page, lane + where, seq, lane == 0)


@triton.jit
def report_outside(count, entries, capacity, group, seq, page, where, amiss):
    """Report that a page, or the row for it, lies outside, where there is a buffer to report to."""
    if count is not None:
        report_page(count, entries, capacity, group, seq, OUTSIDE, page, where, amiss)
