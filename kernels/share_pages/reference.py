"""`share_pages` in torch."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.page_moves import carry_out, enter, existing, join
from kvlife.kernels.violations import Findings


def share_pages_reference(
    table: Tensor, state: Tensor, refs: Tensor, at: Tensor, pages: Tensor, findings: Findings
) -> None:
    """What `share_pages` says, entry after entry."""
    exist = existing(pages, state.numel(), at, table.numel())
    enter(table, at, pages, exist)
    carry_out(lambda spots: join(state, refs, spots), pages, exist, findings, at)
