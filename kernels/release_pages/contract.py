"""`release_pages`: what it takes and does."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.release_pages.reference import release_pages_reference
from kvlife.kernels.table_checks import check_columns, check_entries, check_findings, check_table
from kvlife.kernels.violations import Findings, Violations


def release_pages(
    table: Tensor,
    state: Tensor,
    refs: Tensor,
    pins: Tensor,
    at: Tensor,
    pages: Tensor,
    *,
    violations: Violations,
    seq: int,
    group: int = 0,
) -> Tensor:
    """Clear the table entries `at`; each page loses a reference. Returns what became FREE.

    Takes what `bind_pages` takes, and `pins` as `refs`. A PRIVATE page without references becomes
    FREE, or QUARANTINED while it has pins. References do not fall below 0: one too many is a
    DOUBLE_FREE. Entries and pages may stand in different orders. The result is int32 [n]: the page
    where it became FREE, 0 elsewhere; `fill_pages` takes it. Raises `KernelError`.
    """
    check_columns("release_pages", state=state, refs=refs, pins=pins)
    check_table("release_pages", table, state.device)
    check_entries("release_pages", state.device, at, pages=pages)
    check_findings("release_pages", state.device, violations, seq, group)
    if not at.numel():
        return torch.empty_like(pages)
    findings = Findings(violations=violations, seq=seq, group=group)
    if uses_triton(state):
        # Triton is loaded where it runs, and nowhere else.
        from kvlife.kernels.release_pages.kernel import launch

        return launch(table, state, refs, pins, at, pages, findings)
    return release_pages_reference(table, state, refs, pins, at, pages, findings)
