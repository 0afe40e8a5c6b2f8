"""`bind_pages` in torch."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.page_moves import carry_out, enter, existing, take
from kvlife.kernels.violations import Findings


def bind_pages_reference(
    table: Tensor, state: Tensor, refs: Tensor, at: Tensor, pages: Tensor, findings: Findings
) -> None:
    """What `bind_pages` says, entry after entry."""
    exist = existing(pages, state.numel(), at, table.numel())
    enter(table, at, pages, exist)
    carry_out(lambda spots: take(state, refs, spots), pages, exist, findings, at)
