"""`gather_pages` without Triton."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.page_runs import contents, on_host, rows_of, staged
from kvlife.kernels.planes import Planes


def gather_pages_reference(
    arena: Tensor, planes: Planes, pages: Tensor, staging: Tensor, rows: Tensor | None
) -> None:
    """Copy pages into staging as the contract says; pages and rows lie inside."""
    real, to = rows_of(pages, rows)
    with on_host(arena) as there, on_host(staging) as beside:
        for run, column in zip(contents(there, planes), staged(beside, planes), strict=True):
            column[to] = run[real]
