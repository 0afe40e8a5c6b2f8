"""`change_pages`: what it takes and does."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.change_pages.reference import change_pages_reference
from kvlife.kernels.change_pages.transitions import Transition
from kvlife.kernels.checking import check_tensor, refuse
from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.table_checks import check_columns, check_findings
from kvlife.kernels.violations import Findings, Violations


def change_pages(
    state: Tensor,
    refs: Tensor,
    pins: Tensor,
    pages: Tensor,
    transition: Transition,
    *,
    violations: Violations,
    seq: int,
    group: int = 0,
) -> Tensor:
    """Publish, evict, pin or unpin each of `pages`. Returns what became FREE, as `release_pages`.

    PUBLISH: PRIVATE becomes CACHED; CACHED stays; others are left alone, a NOT_PUBLISHABLE.
    EVICT: CACHED becomes FREE with no reference; one that was not CACHED (then left alone), or had
    references or pins, is a NOT_EVICTABLE.
    PIN: one pin more; a FREE page is a NOT_PINNABLE.
    UNPIN: one pin less, not below 0 (NOT_PINNED); a QUARANTINED page without pins becomes FREE.
    Raises `KernelError`.
    """
    check_columns("change_pages", state=state, refs=refs, pins=pins)
    check_tensor(
        "change_pages", "pages", pages, dtype=torch.int32, shape=(None,), device=state.device
    )
    check_findings("change_pages", state.device, violations, seq, group)
    if transition not in tuple(Transition):
        known = ", ".join(one.name for one in Transition)
        refuse("change_pages", "a transition", f"got {transition!r}", f"take one of {known}")
    if not pages.numel():
        return torch.empty_like(pages)
    findings = Findings(violations=violations, seq=seq, group=group)
    if uses_triton(state):
        # Triton is loaded where it runs, and nowhere else.
        from kvlife.kernels.change_pages.kernel import launch

        return launch(state, refs, pins, pages, transition, findings)
    return change_pages_reference(state, refs, pins, pages, transition, findings)
