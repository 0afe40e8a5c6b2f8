"""`rebind` in Triton: one program, since every page is shared before the first is let go."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvlife.kernels.dispatch import run_kernel
from kvlife.kernels.page_moves_kernel import entered, finding, is_inside, join, let_go
from kvlife.kernels.violations import Findings, ViolationCode
from kvlife.kernels.violations_kernel import report

BLOCK = 256
NOT_REFERENCED = tl.constexpr(int(ViolationCode.NOT_REFERENCED))


@triton.jit(do_not_specialize=["n", "group", "seq"])
def rebind_kernel(
    table,
    state,
    refs,
    pins,
    at,
    own,
    canonical,
    freed,
    n,
    at_stride,
    own_stride,
    canonical_stride,
    table_len,
    num_pages,
    count,
    entries,
    capacity,
    group: tl.int64,
    seq: tl.int64,
    BLOCK: tl.constexpr,
):
    """See `rebind`; `at`, `own` and `canonical` have strides, everything else is contiguous.

    `freed` holds the entries' old pages between the two loops.
    """
    for start in range(0, n, BLOCK):
        lane = start + tl.arange(0, BLOCK).to(tl.int64)
        live = lane < n
        spot = tl.load(at + lane * at_stride, mask=live, other=-1)
        page = tl.load(canonical + lane * canonical_stride, mask=live, other=0)
        before = tl.load(table + spot, mask=live & is_inside(spot, table_len), other=0)
        tl.store(freed + lane, before, mask=live)
        tl.debug_barrier()
        exists = entered(table, table_len, num_pages, spot, page, page, live)
        code = finding(join(state, refs, page, exists), page, exists, live)
        report(count, entries, capacity, code, group, page, spot, seq, code != 0)
    tl.debug_barrier()
    for start in range(0, n, BLOCK):
        lane = start + tl.arange(0, BLOCK).to(tl.int64)
        live = lane < n
        spot = tl.load(at + lane * at_stride, mask=live, other=-1)
        page = tl.load(own + lane * own_stride, mask=live, other=0)
        strange = is_inside(spot, table_len) & (tl.load(freed + lane, mask=live) != page)
        exists = live & is_inside(page, num_pages) & ((spot == -1) | is_inside(spot, table_len))
        gone, code = let_go(state, refs, pins, page, exists)
        code = tl.where(exists & strange & (code == 0), NOT_REFERENCED, code)
        tl.store(freed + lane, tl.where(gone, page, 0), mask=live)
        code = finding(code, page, exists, live)
        report(count, entries, capacity, code, group, page, spot, seq, code != 0)


def launch(
    table: Tensor,
    state: Tensor,
    refs: Tensor,
    pins: Tensor,
    at: Tensor,
    own: Tensor,
    canonical: Tensor,
    findings: Findings,
) -> Tensor:
    """One launch of one program."""
    freed = torch.empty(own.shape, dtype=torch.int32, device=own.device)
    run_kernel(
        rebind_kernel,
        (1,),
        table,
        state,
        refs,
        pins,
        at,
        own,
        canonical,
        freed,
        at.numel(),
        at.stride(0),
        own.stride(0),
        canonical.stride(0),
        table.numel(),
        state.numel(),
        findings.violations.count,
        findings.violations.entries,
        findings.violations.capacity,
        findings.group,
        findings.seq,
        BLOCK=BLOCK,
    )
    return freed
