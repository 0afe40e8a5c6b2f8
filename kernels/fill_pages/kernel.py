"""`fill_pages` in Triton."""

import triton
import triton.language as tl
from torch import Tensor

from kvlife.kernels.page_launch import CHANGING, launch_on_pages
from kvlife.kernels.page_tiles import moving_tiles, shared_word
from kvlife.kernels.page_tiles_kernel import report_outside, tiles_at
from kvlife.kernels.planes import Planes
from kvlife.kernels.violations import Violations


@triton.jit(do_not_specialize=["pages_stride", "byte", *CHANGING])
def fill_pages_kernel(
    arena,
    pages,
    pages_stride,
    byte,
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
    entry = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    page = tl.load(pages + entry * pages_stride).to(tl.int64)
    outside = (page < 0) | (page >= num_pages)
    start, stride, _, size, lanes = tiles_at(table, num_tiles, block, ROWS, COLS)
    mask = (lanes < size * WORD) & ((outside == 0) & (page > 0))
    words = arena.to(tl.pointer_type(ELEMENT)) + lanes
    # The byte in each byte of a word, cut to the word's width by the store.
    pattern = byte.to(tl.uint64) * 0x0101010101010101
    value = (pattern + tl.zeros(mask.shape, tl.uint64)).to(ELEMENT)
    tl.store(words + (start + page * stride) * WORD, value, mask=mask)
    report_outside(count, entries, capacity, group, seq, page, entry, (block == 0) & outside)


def fill_pages_triton(
    arena: Tensor,
    planes: Planes,
    pages: Tensor,
    byte: int,
    violations: Violations | None,
    *,
    seq: int,
    group: int,
) -> None:
    """Fill pages as the contract says, in one launch."""
    launch_on_pages(
        fill_pages_kernel,
        (arena, pages, pages.stride(0), byte),
        pages.numel(),
        planes,
        moving_tiles(planes, shared_word(planes, arena), arena.device),
        violations=violations,
        seq=seq,
        group=group,
    )
