"""`rebind` in torch."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.page_moves import Moved, carry_out, enter, existing, join, let_go
from kvlife.kernels.violations import Findings, ViolationCode


def rebind_reference(
    table: Tensor,
    state: Tensor,
    refs: Tensor,
    pins: Tensor,
    at: Tensor,
    own: Tensor,
    canonical: Tensor,
    findings: Findings,
) -> Tensor:
    """What `rebind` says: all canonical pages first, then the rows' own."""
    exist = existing(canonical, state.numel(), at, table.numel())
    there = at.clamp(0, table.numel() - 1)
    strange = (table[there] != own) & (at >= 0) & (at < table.numel())
    enter(table, at, canonical, exist)
    carry_out(lambda spots: join(state, refs, spots), canonical, exist, findings, at)
    exist = existing(own, state.numel(), at, table.numel())

    def move(spots: Tensor) -> Moved:
        gone, codes = let_go(state, refs, pins, spots)
        here = strange if exist is None else strange[exist]
        other = torch.full_like(codes, int(ViolationCode.NOT_REFERENCED))
        return gone, torch.where(here & (codes == 0), other, codes)

    return carry_out(move, own, exist, findings, at)
