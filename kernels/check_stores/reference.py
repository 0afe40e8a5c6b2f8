"""`check_stores` in torch."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.violations import ViolationCode, Violations, note


def check_stores_reference(
    slots: Tensor,
    rows: Tensor | None,
    writers: Tensor,
    page_size: int,
    violations: Violations,
    *,
    seq: int,
    group: int,
) -> None:
    """Check as the contract says."""
    pages = torch.div(slots, page_size, rounding_mode="floor").long()
    inside = (pages >= 0) & (pages < writers.numel())
    writer = writers[torch.where(inside, pages, 0)]
    foreign = writer == 0 if rows is None else writer != rows
    note(
        violations,
        ViolationCode.STRANGE_STORE,
        (~inside | foreign) & (pages != 0),
        page=torch.where(inside, pages, -1),
        where=slots,
        seq=seq,
        group=group,
    )
