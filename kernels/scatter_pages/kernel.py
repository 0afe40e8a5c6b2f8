"""`scatter_pages` in Triton."""

import triton
import triton.language as tl
from torch import Tensor

from kvlife.kernels.page_launch import CHANGING_STAGING, launch_with_staging
from kvlife.kernels.page_tiles_kernel import both_ends
from kvlife.kernels.planes import Planes
from kvlife.kernels.violations import Violations


@triton.jit(do_not_specialize=CHANGING_STAGING)
def scatter_pages_kernel(
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
    ELEMENT: tl.constexpr,
    WORD: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """One program: a block of tiles of one page. Without `count` nothing is reported."""
    inner, outer, mask = both_ends(
        arena, pages, pages_stride, staging, rows, rows_stride, num_rows, row_words,
        num_pages, table, num_tiles, blocks, count, entries, capacity, seq, group,
        ELEMENT, WORD, ROWS, COLS,
    )  # fmt: skip
    tl.store(inner, tl.load(outer, mask=mask), mask=mask)


def scatter_pages_triton(
    arena: Tensor,
    planes: Planes,
    pages: Tensor,
    staging: Tensor,
    rows: Tensor | None,
    violations: Violations | None,
    *,
    seq: int,
    group: int,
) -> None:
    """Copy rows of staging into pages as the contract says, in one launch."""
    launch_with_staging(
        scatter_pages_kernel, arena, planes, pages, staging, rows, violations, seq=seq, group=group
    )
