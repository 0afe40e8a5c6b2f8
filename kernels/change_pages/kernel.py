"""`change_pages` in Triton: a page in each lane."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvlife.kernels.change_pages.transitions import Transition
from kvlife.kernels.dispatch import run_kernel
from kvlife.kernels.page_moves_kernel import evict, finding, is_inside, pin, publish, unpin
from kvlife.kernels.violations import Findings
from kvlife.kernels.violations_kernel import report

BLOCK = 256
PUBLISH = tl.constexpr(int(Transition.PUBLISH))
EVICT = tl.constexpr(int(Transition.EVICT))
PIN = tl.constexpr(int(Transition.PIN))


@triton.jit(do_not_specialize=["n", "group", "seq"])
def change_pages_kernel(
    state,
    refs,
    pins,
    pages,
    freed,
    n,
    pages_stride,
    num_pages,
    count,
    entries,
    capacity,
    group: tl.int64,
    seq: tl.int64,
    TRANSITION: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """See `change_pages`; `pages` has a stride, everything else is contiguous."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = lane < n
    page = tl.load(pages + lane * pages_stride, mask=live, other=0)
    exists = live & is_inside(page, num_pages)
    gone = live & (lane < 0)
    if TRANSITION == PUBLISH:
        code = publish(state, page, exists)
    elif TRANSITION == EVICT:
        gone, code = evict(state, refs, pins, page, exists)
    elif TRANSITION == PIN:
        code = pin(state, pins, page, exists)
    else:
        gone, code = unpin(state, pins, page, exists)
    tl.store(freed + lane, tl.where(gone, page, 0), mask=live)
    code = finding(code, page, exists, live)
    nowhere = tl.full([BLOCK], -1, tl.int64)
    report(count, entries, capacity, code, group, page, nowhere, seq, code != 0)


def launch(
    state: Tensor,
    refs: Tensor,
    pins: Tensor,
    pages: Tensor,
    transition: Transition,
    findings: Findings,
) -> Tensor:
    """One launch over the pages."""
    freed = torch.empty(pages.shape, dtype=torch.int32, device=pages.device)
    run_kernel(
        change_pages_kernel,
        (triton.cdiv(pages.numel(), BLOCK),),
        state,
        refs,
        pins,
        pages,
        freed,
        pages.numel(),
        pages.stride(0),
        state.numel(),
        findings.violations.count,
        findings.violations.entries,
        findings.violations.capacity,
        findings.group,
        findings.seq,
        TRANSITION=int(transition),
        BLOCK=BLOCK,
    )
    return freed
