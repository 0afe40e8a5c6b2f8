"""`gather_pages` and `scatter_pages` in Triton: a page's words to its row of staging, or back."""

import triton
import triton.language as tl
from torch import Tensor

from kvlife.kernels.page_launch import CHANGING, launch_on_pages
from kvlife.kernels.page_tiles import moving_tiles, shared_word
from kvlife.kernels.page_tiles_kernel import report_outside, tiles_at
from kvlife.kernels.planes import Planes
from kvlife.kernels.violations import Violations


@triton.jit(do_not_specialize=["pages_stride", "rows_stride", "num_rows", "row_words", *CHANGING])
def move_staged_kernel(
    arena,
    pages,
    pages_stride,
    staging,
    rows,
    rows_stride,
    num_rows,
    row_words,
    num_pages,
    table,
    num_tiles,
    blocks,
    count,
    entries,
    capacity,
    seq,
    group,
    GATHER: tl.constexpr,
    ELEMENT: tl.constexpr,
    WORD: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """One program: a block of tiles of one page. Without `count` nothing is reported."""
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
    if GATHER:
        tl.store(outer, tl.load(inner, mask=mask), mask=mask)
    else:
        tl.store(inner, tl.load(outer, mask=mask), mask=mask)
    report_outside(count, entries, capacity, group, seq, page, entry, (block == 0) & outside)


def move_staged(
    arena: Tensor,
    planes: Planes,
    pages: Tensor,
    staging: Tensor,
    rows: Tensor | None,
    violations: Violations | None,
    *,
    seq: int,
    group: int,
    gather: bool,
) -> None:
    """Copy pages into rows of staging, or back, as the contracts say, in one launch."""
    word_bytes = shared_word(planes, arena, staging)
    launch_on_pages(
        move_staged_kernel,
        (
            arena,
            pages,
            pages.stride(0),
            staging,
            rows,
            0 if rows is None else rows.stride(0),
            staging.shape[0],
            staging.stride(0) // word_bytes,
        ),
        pages.numel(),
        planes,
        moving_tiles(planes, word_bytes, arena.device),
        violations=violations,
        seq=seq,
        group=group,
        GATHER=gather,
    )
