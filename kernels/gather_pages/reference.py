"""`gather_pages` in torch."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.page_sections import contents, staged_rows
from kvlife.kernels.planes import Planes


def gather_pages_reference(
    arena: Tensor, planes: Planes, pages: Tensor, staging: Tensor, rows: Tensor | None
) -> None:
    """Copy pages into staging as the contract says; pages and rows lie inside."""
    pages, rows = staged_rows(pages, rows)
    there = rows.to(staging.device)
    for words, columns in contents(arena, planes, staging):
        moved = words.index_select(0, pages).flatten(1).to(staging.device)
        columns.index_copy_(0, there, moved)
