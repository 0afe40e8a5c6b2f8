"""`bind_pages` and `share_pages` in Triton: an entry in each lane, and pages taken or shared."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kvlife.kernels.dispatch import run_kernel
from kvlife.kernels.page_moves_kernel import entered, finding, join, take
from kvlife.kernels.violations import Findings
from kvlife.kernels.violations_kernel import report

BLOCK = 256


@triton.jit(do_not_specialize=["n", "group", "seq"])
def enter_pages_kernel(
    table,
    state,
    refs,
    at,
    pages,
    n,
    at_stride,
    pages_stride,
    table_len,
    num_pages,
    count,
    entries,
    capacity,
    group: tl.int64,
    seq: tl.int64,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """See `bind_pages`, and `share_pages` where `SHARED`; `at` and `pages` alone have strides."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = lane < n
    spot = tl.load(at + lane * at_stride, mask=live, other=-1)
    page = tl.load(pages + lane * pages_stride, mask=live, other=0)
    exists = entered(table, table_len, num_pages, spot, page, page, live)
    wrong = join(state, refs, page, exists) if SHARED else take(state, refs, page, exists)
    code = finding(wrong, page, exists, live)
    report(count, entries, capacity, code, group, page, spot, seq, code != 0)


def enter_pages(
    table: Tensor,
    state: Tensor,
    refs: Tensor,
    at: Tensor,
    pages: Tensor,
    findings: Findings,
    *,
    shared: bool,
) -> None:
    """One launch over the entries."""
    run_kernel(
        enter_pages_kernel,
        (triton.cdiv(at.numel(), BLOCK),),
        table,
        state,
        refs,
        at,
        pages,
        at.numel(),
        at.stride(0),
        pages.stride(0),
        table.numel(),
        state.numel(),
        findings.violations.count,
        findings.violations.entries,
        findings.violations.capacity,
        findings.group,
        findings.seq,
        SHARED=shared,
        BLOCK=BLOCK,
    )
