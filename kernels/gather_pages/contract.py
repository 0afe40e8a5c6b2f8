"""`gather_pages`: what it takes, checks and does."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.gather_pages.reference import gather_pages_reference
from kvlife.kernels.page_checks import (
    check_arena,
    check_distinct,
    check_pages,
    check_report,
    check_staging,
)
from kvlife.kernels.planes import Planes
from kvlife.kernels.violations import Violations

NAME = "gather_pages"


def gather_pages(
    arena: Tensor,
    planes: Planes,
    pages: Tensor,
    staging: Tensor,
    *,
    rows: Tensor | None = None,
    violations: Violations | None = None,
    seq: int = 0,
    group: int = 0,
) -> None:
    """Copy page `pages[i]`, over all layers and planes, into staging row i (or `rows[i]`).

    `arena` uint8 [bytes], contiguous. `pages` int32 or int64 [n], of any stride, on its device; a
    page may stand several times, and page 0 is padding: its row is left as it is. `staging` uint8
    [rows, planes.page_bytes or more], each row contiguous: planes in order, in each its layers in
    order. It lies on the arena's device, or for a CUDA arena in pinned host memory, which the
    device writes itself: wait for the stream before reading it. `rows` int32 or int64 [n], beside
    `pages`, names the row for each, once each: pages go straight to the host pages kept for them.

    On the CPU a page or row outside, or a row named twice, is a `KernelError`; on a device, where
    looking would stop the stream, what is outside is skipped and goes to `violations` as OUTSIDE
    (where: i), and a row that is named twice holds words of either page. Raises `KernelError`.
    """
    check_arena(NAME, arena, planes)
    check_report(NAME, violations, arena, seq, group)
    check_pages(NAME, "pages", pages, arena, planes.num_pages)
    check_staging(NAME, staging, rows, arena, planes, pages.numel())
    if rows is not None:
        check_distinct(NAME, "rows", rows, pages != 0)
    if not pages.numel():
        return
    if uses_triton(arena):
        # Triton is loaded where it is used.
        from kvlife.kernels.gather_pages.kernel import gather_pages_triton

        gather_pages_triton(arena, planes, pages, staging, rows, violations, seq=seq, group=group)
    else:
        gather_pages_reference(arena, planes, pages, staging, rows)
