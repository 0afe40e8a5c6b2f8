"""`scatter_pages`: what it takes, checks and does."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.page_checks import (
    check_arena,
    check_distinct,
    check_pages,
    check_report,
    check_staging,
)
from kvlife.kernels.planes import Planes
from kvlife.kernels.scatter_pages.reference import scatter_pages_reference
from kvlife.kernels.violations import Violations

NAME = "scatter_pages"


def scatter_pages(
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
    """Copy staging row i (or `rows[i]`) into page `pages[i]`, over all layers and planes.

    The way back of `gather_pages`, with the same shapes, places and memory. `arena` is changed in
    place. Page 0 is padding: its row is not read. A page stands once, a row may stand several
    times. Pinned rows are read by the device: leave them alone until the stream has come past.

    On the CPU a page or row outside, or a page named twice, is a `KernelError`; on a device, where
    looking would stop the stream, what is outside is skipped and goes to `violations` as OUTSIDE
    (where: i), and a page that is named twice holds words of either row. Raises `KernelError`.
    """
    check_arena(NAME, arena, planes)
    check_report(NAME, violations, arena, seq, group)
    check_pages(NAME, "pages", pages, arena, planes.num_pages)
    check_staging(NAME, staging, rows, arena, planes, pages.numel())
    check_distinct(NAME, "pages", pages, pages != 0)
    if not pages.numel():
        return
    if uses_triton(arena):
        # Triton is loaded where it is used.
        from kvlife.kernels.scatter_pages.kernel import scatter_pages_triton

        scatter_pages_triton(arena, planes, pages, staging, rows, violations, seq=seq, group=group)
    else:
        scatter_pages_reference(arena, planes, pages, staging, rows)
