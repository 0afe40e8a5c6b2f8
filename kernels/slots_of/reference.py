"""`slots_of` in torch."""

from __future__ import annotations

import torch
from torch import Tensor


def slots_of_reference(
    table: Tensor,
    width: int,
    page_size: int,
    rows: Tensor,
    low: Tensor,
    high: Tensor,
    offsets: Tensor,
    total: int,
) -> Tensor:
    """What `slots_of` says, all positions at once."""
    spot = torch.arange(total, device=table.device)
    if not rows.numel():
        return torch.zeros(total, dtype=torch.int32, device=table.device)
    nth = (torch.searchsorted(offsets.contiguous(), spot, right=True) - 1).clamp(
        0, rows.numel() - 1
    )
    position = low[nth] + (spot - offsets[nth])
    covered = (position >= 0) & (position < high[nth])
    return slots_at(table, width, page_size, rows[nth].long(), position.long(), covered)


def slots_at(
    table: Tensor, width: int, page_size: int, row: Tensor, position: Tensor, covered: Tensor
) -> Tensor:
    """The slot of each position of a row, int32; 0 where it is not covered or not in the table."""
    idx = torch.div(position, page_size, rounding_mode="floor")
    there = covered & (idx < width) & (row >= 0) & (row < table.numel() // width)
    entry = torch.where(there, row * width + idx, 0)
    slot = table[entry] * page_size + torch.remainder(position, page_size)
    return torch.where(there, slot, 0).to(torch.int32)
