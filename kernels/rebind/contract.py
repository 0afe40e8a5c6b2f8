"""`rebind`: what it takes and does."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.rebind.reference import rebind_reference
from kvlife.kernels.table_checks import check_columns, check_entries, check_findings, check_table
from kvlife.kernels.violations import Findings, Violations


def rebind(
    table: Tensor,
    state: Tensor,
    refs: Tensor,
    pins: Tensor,
    at: Tensor,
    own: Tensor,
    canonical: Tensor,
    *,
    violations: Violations,
    seq: int,
    group: int = 0,
) -> Tensor:
    """Write `canonical` to the entries `at` as `share_pages` does, then let go of `own`.

    Takes and returns what `release_pages` does; `own` and `canonical` are int32 [n]. All are shared
    before the first is let go. An entry that did not hold `own` is a NOT_REFERENCED. Raises
    `KernelError`.
    """
    check_columns("rebind", state=state, refs=refs, pins=pins)
    check_table("rebind", table, state.device)
    check_entries("rebind", state.device, at, own=own, canonical=canonical)
    check_findings("rebind", state.device, violations, seq, group)
    if not at.numel():
        return torch.empty_like(own)
    findings = Findings(violations=violations, seq=seq, group=group)
    if uses_triton(state):
        # Triton is loaded where it runs, and nowhere else.
        from kvlife.kernels.rebind.kernel import launch

        return launch(table, state, refs, pins, at, own, canonical, findings)
    return rebind_reference(table, state, refs, pins, at, own, canonical, findings)
