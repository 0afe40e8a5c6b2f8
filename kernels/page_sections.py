"""For references: a plane's sections as one strided tensor over the arena."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from kvlife.kernels.planes import Plane, Planes

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
MAX_ELEMENT_BYTES = 8


def element_bytes(planes: Planes, *tensors: Tensor) -> int:
    """The widest element in which torch can view the planes and the tensors' rows."""
    numbers = [planes.word_bytes, MAX_ELEMENT_BYTES]
    for tensor in tensors:
        numbers.append(tensor.storage_offset())
        numbers += [tensor.stride(0)] if tensor.ndim > 1 and tensor.shape[0] > 1 else []
    return math.gcd(*numbers)


def words_of(tensor: Tensor, num_bytes: int) -> Tensor:
    """Bytes, in their last dimension contiguous, as elements of `num_bytes`."""
    return tensor.view(_WORDS[num_bytes])


def sections(arena: Tensor, planes: Planes, plane: Plane, num_bytes: int) -> Tensor:
    """[num_pages, num_layers, elements of a section], for elements of `num_bytes`."""
    words = words_of(arena[: planes.num_bytes], num_bytes)
    return words.as_strided(
        (planes.num_pages, plane.num_layers, plane.page_bytes // num_bytes),
        (plane.page_stride // num_bytes, plane.layer_stride // num_bytes, 1),
        words.storage_offset() + plane.offset // num_bytes,
    )


def contents(arena: Tensor, planes: Planes, staging: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """For each plane its sections, and the columns of staging rows that hold them."""
    num_bytes = element_bytes(planes, arena, staging)
    low = 0
    for plane in planes.planes:
        high = low + plane.num_layers * plane.page_bytes
        columns = words_of(staging[:, low:high], num_bytes)
        yield sections(arena, planes, plane, num_bytes), columns
        low = high


def staged_rows(pages: Tensor, rows: Tensor | None) -> tuple[Tensor, Tensor]:
    """The pages that are not padding, and the staging row of each."""
    rows = torch.arange(pages.numel(), device=pages.device) if rows is None else rows
    real = pages != 0
    return pages[real].long(), rows[real].long()
