"""`expand_tokens` in torch."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.slots_of.reference import slots_at


def expand_tokens_reference(
    table: Tensor, width: int, page_size: int, rows: Tensor, lens: Tensor, out: Tensor
) -> None:
    """What `expand_tokens` says, all rows at once."""
    position = torch.arange(out.shape[1], device=table.device).expand(out.shape)
    covered = position < lens[:, None]
    row = rows.long()[:, None].expand(out.shape)
    slots = slots_at(table, width, page_size, row, position, covered)
    out.copy_(torch.where(covered, slots, out))
