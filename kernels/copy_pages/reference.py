"""`copy_pages` in torch."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.page_sections import element_bytes, sections
from kvlife.kernels.planes import Planes


def copy_pages_reference(arena: Tensor, planes: Planes, src: Tensor, dst: Tensor) -> None:
    """Copy pages as the contract says; pages lie in the pool."""
    real = dst != 0
    src, dst = src[real].long(), dst[real].long()
    for plane in planes.planes:
        words = sections(arena, planes, plane, element_bytes(planes, arena))
        words.index_copy_(0, dst, words.index_select(0, src))
