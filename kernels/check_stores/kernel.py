"""`check_stores` in Triton."""

import triton
import triton.language as tl
from torch import Tensor

from kvlife.kernels.dispatch import run_kernel
from kvlife.kernels.violations import ViolationCode, Violations
from kvlife.kernels.violations_kernel import report

BLOCK = 256
STRANGE_STORE = tl.constexpr(int(ViolationCode.STRANGE_STORE))


@triton.jit(do_not_specialize=["num", "num_pages", "page_size", "seq", "group", "capacity"])
def check_stores_kernel(
    slots,
    slots_stride,
    rows,
    rows_stride,
    writers,
    num_pages,
    page_size,
    num,
    count,
    entries,
    capacity,
    seq,
    group,
    BLOCK: tl.constexpr,
):
    """One program: a block of slots; without `rows`, any row will do."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = place < num
    slot = tl.load(slots + place * slots_stride, mask=there, other=0)
    # Division rounds towards zero: a negative slot would lie on page 0.
    page = tl.where(slot < 0, -1, slot // page_size)
    inside = (page >= 0) & (page < num_pages)
    writer = tl.load(writers + page.to(tl.int64), mask=there & inside, other=0)
    foreign = writer == 0
    if rows is not None:
        foreign = writer != tl.load(rows + place * rows_stride, mask=there, other=0)
    amiss = there & (page != 0) & ((inside == 0) | foreign)
    shown = tl.where(inside, page, -1)
    report(count, entries, capacity, STRANGE_STORE, group, shown, slot, seq, amiss)


def check_stores_triton(
    slots: Tensor,
    rows: Tensor | None,
    writers: Tensor,
    page_size: int,
    violations: Violations,
    *,
    seq: int,
    group: int,
) -> None:
    """Check as the contract says, in one launch."""
    num = slots.numel()
    run_kernel(
        check_stores_kernel,
        (triton.cdiv(num, BLOCK),),
        slots,
        slots.stride(0),
        rows,
        0 if rows is None else rows.stride(0),
        writers,
        writers.numel(),
        page_size,
        num,
        violations.count,
        violations.entries,
        violations.capacity,
        seq,
        group,
        BLOCK=BLOCK,
    )
