"""`copy_pages`: what it takes, checks and does."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.checking import check_tensor, refuse
from kvlife.kernels.copy_pages.reference import copy_pages_reference
from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.page_checks import (
    check_arena,
    check_distinct,
    check_pages,
    check_report,
    may_look,
)
from kvlife.kernels.planes import Planes
from kvlife.kernels.violations import Violations

NAME = "copy_pages"


def copy_pages(
    arena: Tensor,
    planes: Planes,
    src: Tensor,
    dst: Tensor,
    *,
    violations: Violations | None = None,
    seq: int = 0,
    group: int = 0,
) -> None:
    """Copy page `src[i]` to page `dst[i]`, over all layers and planes.

    `arena` uint8 [bytes], contiguous, changed in place. `src` and `dst` int32 or int64 [n], of any
    stride, on its device. A pair to page 0 is padding and skipped. A source may stand several
    times, a target once, and no target is a source: all pairs are copied at the same time.

    On the CPU a page outside the pool, a copy from page 0 and a target that breaks this are a
    `KernelError`. On a device looking would stop the stream: the first two are skipped and go to
    `violations`, as OUTSIDE and RESERVED_TOUCHED (where: i), and a target that is written twice, or
    read beside, holds words of either page. Raises `KernelError`.
    """
    check_arena(NAME, arena, planes)
    check_report(NAME, violations, arena, seq, group)
    check_pages(NAME, "src", src, arena, planes.num_pages)
    check_pages(NAME, "dst", dst, arena, planes.num_pages)
    check_tensor(NAME, "dst", dst, dtype=dst.dtype, shape=tuple(src.shape))
    if may_look(src):
        _check_pairs(src, dst)
    if not src.numel():
        return
    if uses_triton(arena):
        # Triton is loaded where it is used.
        from kvlife.kernels.copy_pages.kernel import copy_pages_triton

        copy_pages_triton(arena, planes, src, dst, violations, seq=seq, group=group)
    else:
        copy_pages_reference(arena, planes, src, dst)


def _check_pairs(src: Tensor, dst: Tensor) -> None:
    real = dst != 0
    if bool((real & (src == 0)).any()):
        refuse(NAME, "a copy of page 0", "it is reserved and holds nothing", "name a page in use")
    check_distinct(NAME, "pages", dst, real)
    both = torch.isin(dst, src[real]) & real
    if bool(both.any()):
        refuse(
            NAME,
            "pairs that are copied at the same time",
            f"pages {dst[both].tolist()[:8]} are sources and targets",
            "copy in several calls",
        )
