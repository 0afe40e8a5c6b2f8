"""`scatter_pages` in torch."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.page_sections import contents, staged_rows
from kvlife.kernels.planes import Planes


def scatter_pages_reference(
    arena: Tensor, planes: Planes, pages: Tensor, staging: Tensor, rows: Tensor | None
) -> None:
    """Copy staging into pages as the contract says; pages and rows lie inside."""
    pages, rows = staged_rows(pages, rows)
    there = rows.to(staging.device)
    for words, columns in contents(arena, planes, staging):
        moved = columns.index_select(0, there).to(arena.device)
        words.index_copy_(0, pages, moved.unflatten(1, words.shape[1:]))
