"""`audit_refs` in Triton: one launch over all tables counts, one over all pages compares."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvlife.kernels.dispatch import run_kernel
from kvlife.kernels.page_moves_kernel import CACHED, FREE, OUTSIDE, PRIVATE, QUARANTINED, is_inside
from kvlife.kernels.violations import ViolationCode, Violations
from kvlife.kernels.violations_kernel import report

BLOCK = 512
PAGE_MISSING = tl.constexpr(int(ViolationCode.PAGE_MISSING))
PAGE_UNASKED = tl.constexpr(int(ViolationCode.PAGE_UNASKED))
REF_TO_FREE = tl.constexpr(int(ViolationCode.REF_TO_FREE))
ALIASED = tl.constexpr(int(ViolationCode.ALIASED))
REFS_DISAGREE = tl.constexpr(int(ViolationCode.REFS_DISAGREE))
LOST = tl.constexpr(int(ViolationCode.LOST))
NOT_PINNABLE = tl.constexpr(int(ViolationCode.NOT_PINNABLE))


@triton.jit(do_not_specialize=["seq"])
def audit_entries_kernel(
    tables,
    groups,
    state,
    counts,
    allocated,
    floor,
    cursors,
    num_rows,
    count,
    entries,
    capacity,
    seq: tl.int64,
    BLOCK: tl.constexpr,
):
    """See `audit_refs`: programs are [stretches, groups]; those past a table's end do nothing."""
    group = tl.program_id(1)
    column = groups + group * 6
    width = tl.load(column + 1)
    size = tl.load(column + 2)
    page_start = tl.load(column + 3)
    num_pages = tl.load(column + 4)
    window = tl.load(column + 5)
    where = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = where < num_rows * width
    page = tl.load(tables + tl.load(column) + where, mask=live, other=0)
    there = live & (page != 0) & is_inside(page, num_pages)
    tl.atomic_add(counts + page_start + page, 1, mask=there, sem="relaxed")

    row = where // width
    idx = where - row * width
    low = idx * size
    wanted = live & (low < tl.load(allocated + row, mask=live, other=0))
    if window >= 0:
        kept = low < tl.load(floor + row, mask=live, other=0)
        cursor = tl.load(cursors + window * num_rows + row, mask=live, other=0)
        wanted &= kept | (idx >= cursor // size)
    is_now = tl.load(state + page_start + page, mask=there, other=PRIVATE)
    code = tl.where((is_now != PRIVATE) & (is_now != CACHED), REF_TO_FREE, 0)
    code = tl.where(there & ~wanted, PAGE_UNASKED, code)
    code = tl.where(wanted & (page == 0), PAGE_MISSING, code)
    code = tl.where(live & (page != 0) & ~there, OUTSIDE, code)
    report(count, entries, capacity, code, group, page, where, seq, code != 0)


@triton.jit(do_not_specialize=["seq"])
def audit_pages_kernel(
    groups,
    counts,
    state,
    refs,
    pins,
    count,
    entries,
    capacity,
    seq: tl.int64,
    BLOCK: tl.constexpr,
):
    """See `audit_refs`: programs are [stretches of a space, groups]; a space's first group acts."""
    group = tl.program_id(1)
    page_start = tl.load(groups + group * 6 + 3)
    num_pages = tl.load(groups + group * 6 + 4)
    earlier = 0
    for other in range(group):
        earlier += (tl.load(groups + other * 6 + 3) == page_start).to(tl.int32)
    page = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = (page < num_pages) & (earlier == 0)
    spot = page_start + page
    counted = tl.load(counts + spot, mask=live, other=0)
    is_now = tl.load(state + spot, mask=live, other=CACHED)
    held = tl.load(refs + spot, mask=live, other=0)
    pinned = tl.load(pins + spot, mask=live, other=0) > 0
    code = tl.where((is_now == FREE) & pinned, NOT_PINNABLE, 0)
    code = tl.where((is_now == QUARANTINED) & ~pinned, LOST, code)
    code = tl.where((is_now == PRIVATE) & (counted == 0), LOST, code)
    code = tl.where(counted > held, ALIASED, code)
    code = tl.where(counted < held, REFS_DISAGREE, code)
    nowhere = tl.full([BLOCK], -1, tl.int64)
    report(count, entries, capacity, code, group, page, nowhere, seq, code != 0)


def launch(
    tables: Tensor,
    groups: Tensor,
    state: Tensor,
    refs: Tensor,
    pins: Tensor,
    allocated: Tensor,
    floor: Tensor,
    cursors: Tensor,
    violations: Violations,
    seq: int,
) -> None:
    """Two launches; a grid covers the longest table and space that the arenas could hold."""
    counts = torch.zeros_like(refs)
    num_groups = groups.shape[0]
    found = (violations.count, violations.entries, violations.capacity, seq)
    run_kernel(
        audit_entries_kernel,
        (triton.cdiv(tables.numel(), BLOCK), num_groups),
        tables,
        groups,
        state,
        counts,
        allocated,
        floor,
        cursors,
        allocated.numel(),
        *found,
        BLOCK=BLOCK,
    )
    run_kernel(
        audit_pages_kernel,
        (triton.cdiv(state.numel(), BLOCK), num_groups),
        groups,
        counts,
        state,
        refs,
        pins,
        *found,
        BLOCK=BLOCK,
    )
