"""`copy_pages` in Triton."""

import triton
import triton.language as tl
from torch import Tensor

from kvlife.kernels.page_launch import CHANGING, launch_on_pages
from kvlife.kernels.page_tiles import moving_tiles, shared_word
from kvlife.kernels.page_tiles_kernel import report_page, tiles_at
from kvlife.kernels.planes import Planes
from kvlife.kernels.violations import ViolationCode, Violations

OUTSIDE = tl.constexpr(int(ViolationCode.OUTSIDE))
RESERVED_TOUCHED = tl.constexpr(int(ViolationCode.RESERVED_TOUCHED))


@triton.jit(do_not_specialize=["src_stride", "dst_stride", *CHANGING])
def copy_pages_kernel(
    arena,
    src,
    src_stride,
    dst,
    dst_stride,
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
    """One program: a block of tiles of one pair of pages. Without `count` nothing is reported."""
    pair = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    source = tl.load(src + pair * src_stride).to(tl.int64)
    target = tl.load(dst + pair * dst_stride).to(tl.int64)
    strange = (source < 0) | (source >= num_pages)
    outside = strange | (target < 0) | (target >= num_pages)
    start, stride, _, size, lanes = tiles_at(table, num_tiles, block, ROWS, COLS)
    mask = (lanes < size * WORD) & ((outside == 0) & (source > 0) & (target > 0))
    words = arena.to(tl.pointer_type(ELEMENT)) + lanes
    value = tl.load(words + (start + source * stride) * WORD, mask=mask)
    tl.store(words + (start + target * stride) * WORD, value, mask=mask)
    if count is not None:
        reserved = (outside == 0) & (source == 0) & (target > 0)
        code = tl.where(reserved, RESERVED_TOUCHED, OUTSIDE)
        page = tl.where(strange | reserved, source, target)
        amiss = (block == 0) & (outside | reserved)
        report_page(count, entries, capacity, group, seq, code, page, pair, amiss)


def copy_pages_triton(
    arena: Tensor,
    planes: Planes,
    src: Tensor,
    dst: Tensor,
    violations: Violations | None,
    *,
    seq: int,
    group: int,
) -> None:
    """Copy pages as the contract says, in one launch."""
    launch_on_pages(
        copy_pages_kernel,
        (arena, src, src.stride(0), dst, dst.stride(0)),
        src.numel(),
        planes,
        moving_tiles(planes, shared_word(planes, arena), arena.device),
        violations=violations,
        seq=seq,
        group=group,
    )
