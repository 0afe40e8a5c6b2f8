"""The rows of a part of the KV in an arena, for references: where they lie, writing, reading."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kvlife.kernels.kv_target import KvTarget, RowPlace


def put_rows(
    arena: Tensor, target: KvTarget, place: RowPlace, layer: int, slots: Tensor, content: Tensor
) -> None:
    """Write bytes [n, bytes of the place] to the rows of n slots."""
    rows, where = _rows(arena, target, place, layer, slots)
    if rows.device.type == "cpu":
        _whole(rows)[_numpy(where)] = _whole(content.contiguous())
    else:
        rows[where] = content


def take_rows(
    arena: Tensor, target: KvTarget, place: RowPlace, layer: int, slots: Tensor
) -> Tensor:
    """The bytes [n, bytes of the place] of the rows of n slots, copied."""
    rows, where = _rows(arena, target, place, layer, slots)
    if rows.device.type == "cpu":
        taken = _whole(rows)[_numpy(where)].view(np.uint8)
        return torch.from_numpy(taken).view(slots.numel(), place.num_bytes)
    return rows[where]


def _whole(rows: Tensor) -> npt.NDArray[np.void]:
    """Rows of bytes as numpy's elements: numpy copies them several times as fast as torch does."""
    whole: npt.NDArray[np.void] = rows.numpy().view(f"V{rows.shape[-1]}")
    return whole[..., 0]


def _numpy(where: tuple[Tensor, ...]) -> tuple[npt.NDArray[np.int64], ...]:
    return tuple(index.numpy() for index in where)


def _rows(
    arena: Tensor, target: KvTarget, place: RowPlace, layer: int, slots: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A view of all rows of a place, as bytes, and the index of the slots' ones in it."""
    first = arena.storage_offset() + place.base(layer)
    page, row = place.plane.page_stride, place.row_bytes
    slots = slots.long()
    if page == target.page_size * row:
        flat = (target.num_slots, place.num_bytes)
        return arena.as_strided(flat, (row, 1), first), (slots,)
    shape = (target.num_pages, target.page_size, place.num_bytes)
    where = (slots // target.page_size, slots % target.page_size)
    return arena.as_strided(shape, (page, row, 1), first), where
