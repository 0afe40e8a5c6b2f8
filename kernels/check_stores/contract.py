"""`check_stores`: what it takes, checks and does."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.check_stores.reference import check_stores_reference
from kvlife.kernels.checking import check_tensor, refuse
from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.violations import Violations

NAME = "check_stores"
INTS = (torch.int32, torch.int64)


def check_stores(
    slots: Tensor,
    rows: Tensor | None,
    writers: Tensor,
    page_size: int,
    *,
    violations: Violations,
    seq: int,
    group: int = 0,
) -> None:
    """Report a STRANGE_STORE for each slot on a page that its row may not write; `where`: slot.

    `slots` int32 or int64 [n] and `rows` int32 [n] of any stride; `writers` int32 [pages],
    contiguous: the row that may write a page, 0 for none. Without `rows`, some row must have the
    page. Slots of page 0 are padding; a slot outside the pool is strange, and its page -1. Only
    `violations` is written. Raises `KernelError`.
    """
    device = violations.count.device
    check_tensor(NAME, "slots", slots, dtype=INTS, shape=(None,), device=device)
    check_tensor(
        NAME, "writers", writers, dtype=torch.int32, shape=(None,), device=device, contiguous=True
    )
    if rows is not None:
        shape = tuple(slots.shape)
        check_tensor(NAME, "rows", rows, dtype=torch.int32, shape=shape, device=device)
    if page_size < 1:
        refuse(NAME, f"pages of {page_size} tokens", "a page holds one at least", "give its size")
    if not slots.numel():
        return
    if uses_triton(slots):
        # Triton is loaded where it is used.
        from kvlife.kernels.check_stores.kernel import check_stores_triton

        check_stores_triton(slots, rows, writers, page_size, violations, seq=seq, group=group)
    else:
        check_stores_reference(slots, rows, writers, page_size, violations, seq=seq, group=group)
