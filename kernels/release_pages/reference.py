"""`release_pages` in torch."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.page_moves import carry_out, enter, existing, let_go
from kvlife.kernels.violations import Findings


def release_pages_reference(
    table: Tensor,
    state: Tensor,
    refs: Tensor,
    pins: Tensor,
    at: Tensor,
    pages: Tensor,
    findings: Findings,
) -> Tensor:
    """What `release_pages` says, entry after entry."""
    exist = existing(pages, state.numel(), at, table.numel())
    enter(table, at, 0, exist)
    return carry_out(lambda spots: let_go(state, refs, pins, spots), pages, exist, findings, at)
