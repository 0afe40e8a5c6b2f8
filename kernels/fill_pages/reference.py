"""`fill_pages` in torch."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.page_sections import element_bytes, sections
from kvlife.kernels.planes import Planes


def fill_pages_reference(arena: Tensor, planes: Planes, pages: Tensor, byte: int) -> None:
    """Fill pages as the contract says; pages lie in the pool."""
    pages = pages[pages != 0].long()
    num_bytes = element_bytes(planes, arena)
    word = int.from_bytes(bytes([byte]) * num_bytes, "little", signed=num_bytes > 1)
    for plane in planes.planes:
        sections(arena, planes, plane, num_bytes).index_fill_(0, pages, word)
