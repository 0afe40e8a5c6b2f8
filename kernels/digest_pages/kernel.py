"""`digest_pages` in Triton."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvlife.kernels.digest_pages import mixing
from kvlife.kernels.page_launch import CHANGING, launch_on_pages
from kvlife.kernels.page_tiles import LANES, digest_tiles, shared_word
from kvlife.kernels.page_tiles_kernel import report_outside, tiles_at
from kvlife.kernels.planes import Planes
from kvlife.kernels.violations import Violations

STEP = tl.constexpr(mixing.STEP)
FACTOR = tl.constexpr(mixing.FACTOR)


@triton.jit
def mixed(words):
    """The bijection of `mixing.py` on uint64."""
    words = (words ^ (words >> 32)) * FACTOR
    words = (words ^ (words >> 32)) * FACTOR
    return words ^ (words >> 32)


@triton.jit(do_not_specialize=["pages_stride", *CHANGING])
def digest_pages_kernel(
    arena,
    pages,
    pages_stride,
    digests,
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
    PARTS: tl.constexpr,
):
    """One program: a block of tiles of one page, whose words come in `PARTS` elements each."""
    entry = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    page = tl.load(pages + entry * pages_stride).to(tl.int64)
    outside = (page < 0) | (page >= num_pages)
    start, stride, place, size, lanes = tiles_at(table, num_tiles, block, ROWS, COLS)
    inside = (outside == 0) & (page > 0)
    elements = arena.to(tl.pointer_type(ELEMENT)) + (start + page * stride) * WORD + lanes * PARTS
    mask = (lanes * PARTS < size * WORD) & inside
    words = tl.load(elements, mask=mask, other=0).to(tl.uint64)
    for part in tl.static_range(1, PARTS):
        there = (lanes * PARTS + part < size * WORD) & inside
        value = tl.load(elements + part, mask=there, other=0).to(tl.uint64)
        words |= value << (part * (64 // PARTS))
    words = mixed(words + (place + lanes + 1).to(tl.uint64) * STEP)
    total = tl.sum(tl.where(mask, words.to(tl.int64), 0))
    tl.atomic_add(digests + entry, total, sem="relaxed")
    report_outside(count, entries, capacity, group, seq, page, entry, (block == 0) & outside)


def digest_pages_triton(
    arena: Tensor,
    planes: Planes,
    pages: Tensor,
    violations: Violations | None,
    *,
    seq: int = 0,
    group: int = 0,
    lanes: int = LANES,
    num_warps: int = 4,
) -> Tensor:
    """Digest pages as the contract says, in one launch; its shape makes no difference."""
    digests = torch.zeros(pages.numel(), dtype=torch.int64, device=arena.device)
    word_bytes = shared_word(planes, arena)
    if not pages.numel():
        return digests
    launch_on_pages(
        digest_pages_kernel,
        (arena, pages, pages.stride(0), digests),
        pages.numel(),
        planes,
        digest_tiles(planes, word_bytes, arena.device, lanes),
        violations=violations,
        seq=seq,
        group=group,
        num_warps=num_warps,
        PARTS=max(8 // word_bytes, 1),
    )
    return digests
