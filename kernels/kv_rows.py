"""The rows of a part of the KV in an arena, for references: where they lie, writing, reading."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kvlife.kernels.kv_target import KvTarget, RowPlace

WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


def put_rows(
    arena: Tensor, target: KvTarget, place: RowPlace, layer: int, slots: Tensor, content: Tensor
) -> None:
    """Write bytes [n, bytes of the place] to the rows of n slots."""
    content = content.contiguous()
    rows, where = _rows(arena, target, place, layer, slots)
    word = _word(rows, content)
    rows, content = rows.view(word), content.view(word)
    if rows.device.type == "cpu":
        # numpy writes whole rows about five times as fast as torch's index_copy_ and index_put_.
        rows.numpy()[tuple(index.numpy() for index in where)] = content.numpy()
    else:
        rows[where] = content


def take_rows(
    arena: Tensor, target: KvTarget, place: RowPlace, layer: int, slots: Tensor
) -> Tensor:
    """The bytes [n, bytes of the place] of the rows of n slots, copied."""
    rows, where = _rows(arena, target, place, layer, slots)
    return rows.view(_word(rows))[where].view(torch.uint8)


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


def _word(*rows: Tensor) -> torch.dtype:
    """The widest word that rows of bytes can be read in: it divides all that places them."""
    numbers = [8]
    for tensor in rows:
        numbers += [tensor.storage_offset(), tensor.shape[-1], *tensor.stride()[:-1]]
    return WORDS[math.gcd(*numbers)]
