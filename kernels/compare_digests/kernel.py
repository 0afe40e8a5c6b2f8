"""`compare_digests` in Triton."""

import triton
import triton.language as tl
from torch import Tensor

from kvlife.kernels.dispatch import run_kernel
from kvlife.kernels.violations import ViolationCode, Violations
from kvlife.kernels.violations_kernel import report

BLOCK = 256
CONTENT_CHANGED = tl.constexpr(int(ViolationCode.CONTENT_CHANGED))


@triton.jit(do_not_specialize=["num", "seq", "group", "capacity"])
def compare_digests_kernel(
    found,
    found_stride,
    expected,
    expected_stride,
    pages,
    pages_stride,
    num,
    count,
    entries,
    capacity,
    seq,
    group,
    BLOCK: tl.constexpr,
):
    """One program: a block of pages."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = place < num
    digest = tl.load(found + place * found_stride, mask=there, other=0)
    wanted = tl.load(expected + place * expected_stride, mask=there, other=0)
    page = tl.load(pages + place * pages_stride, mask=there, other=0)
    amiss = there & (digest != wanted)
    report(count, entries, capacity, CONTENT_CHANGED, group, page, digest, seq, amiss)


def compare_digests_triton(
    found: Tensor, expected: Tensor, pages: Tensor, violations: Violations, *, seq: int, group: int
) -> None:
    """Compare as the contract says, in one launch."""
    num = pages.numel()
    run_kernel(
        compare_digests_kernel,
        (triton.cdiv(num, BLOCK),),
        found,
        found.stride(0),
        expected,
        expected.stride(0),
        pages,
        pages.stride(0),
        num,
        violations.count,
        violations.entries,
        violations.capacity,
        seq,
        group,
        BLOCK=BLOCK,
    )
