"""`fill_pages`: what it takes, checks and does."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.fill_pages.reference import fill_pages_reference
from kvlife.kernels.page_checks import (
    check_arena,
    check_byte,
    check_pages,
    check_report,
)
from kvlife.kernels.planes import Planes
from kvlife.kernels.violations import Violations

NAME = "fill_pages"


def fill_pages(
    arena: Tensor,
    planes: Planes,
    pages: Tensor,
    byte: int,
    *,
    violations: Violations | None = None,
    seq: int = 0,
    group: int = 0,
) -> None:
    """Set every byte of `pages`, over all layers and planes, to `byte` (0 to 255).

    `arena` uint8 [bytes], contiguous, changed in place. `pages` int32 or int64 [n], of any stride,
    on its device; a page may stand several times, and page 0 is padding and skipped, so that what
    `release_pages` returns can be passed as it is. On the CPU a page outside the pool is a
    `KernelError`; on a device it is skipped and goes to `violations` as OUTSIDE (where: i). Raises
    `KernelError`.
    """
    check_arena(NAME, arena, planes)
    check_report(NAME, violations, arena, seq, group)
    check_pages(NAME, "pages", pages, arena, planes.num_pages)
    check_byte(NAME, byte)
    if not pages.numel():
        return
    if uses_triton(arena):
        # Triton is loaded where it is used.
        from kvlife.kernels.fill_pages.kernel import fill_pages_triton

        fill_pages_triton(arena, planes, pages, byte, violations, seq=seq, group=group)
    else:
        fill_pages_reference(arena, planes, pages, byte)
