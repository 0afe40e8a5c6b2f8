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


@triton.jit
def both_ends(
    arena, pages, pages_stride, staging, rows, rows_stride, num_rows, row_words,
    num_pages, table, num_tiles, blocks, count, entries, capacity, seq, group,
    ELEMENT: tl.constexpr, WORD: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Where a program's words lie in the arena and in staging, and which of them it moves."""
    entry = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    page = tl.load(pages + entry * pages_stride).to(tl.int64)
    row = entry
    if rows is not None:
        row = tl.load(rows + entry * rows_stride).to(tl.int64)
    outside = (page < 0) | (page >= num_pages) | (row < 0) | (row >= num_rows)
    start, stride, place, size, lanes = tiles_at(table, num_tiles, block, ROWS, COLS)
    mask = (lanes < size * WORD) & ((outside == 0) & (page > 0))
    inner = arena.to(tl.pointer_type(ELEMENT)) + lanes + (start + page * stride) * WORD
    outer = staging.to(tl.pointer_type(ELEMENT)) + lanes + (row * row_words + place) * WORD
    report_outside(count, entries, capacity, group, seq, page, entry, (block == 0) & outside)
    return inner, outer, mask
