"""`compare_digests`: what it takes, checks and does."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.checking import check_tensor
from kvlife.kernels.compare_digests.reference import compare_digests_reference
from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.violations import Violations

NAME = "compare_digests"


def compare_digests(
    found: Tensor,
    expected: Tensor,
    pages: Tensor,
    *,
    violations: Violations,
    seq: int,
    group: int = 0,
) -> None:
    """Report a CONTENT_CHANGED for each page whose digest is not the expected one.

    `found` and `expected` int64 [n], `pages` int32 or int64 [n], of any stride, on the device of
    `violations`, to which alone is written; `where` is the digest that was found. Raises
    `KernelError`.
    """
    device = violations.count.device
    for name, digests in (("found", found), ("expected", expected)):
        shape = tuple(pages.shape)
        check_tensor(NAME, name, digests, dtype=torch.int64, shape=shape, device=device)
    check_tensor(
        NAME, "pages", pages, dtype=(torch.int32, torch.int64), shape=(None,), device=device
    )
    if not pages.numel():
        return
    if uses_triton(found):
        # Triton is loaded where it is used.
        from kvlife.kernels.compare_digests.kernel import compare_digests_triton

        compare_digests_triton(found, expected, pages, violations, seq=seq, group=group)
    else:
        compare_digests_reference(found, expected, pages, violations, seq=seq, group=group)
