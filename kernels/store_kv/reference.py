"""`store_kv` in torch."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.kv_rows import put_rows
from kvlife.kernels.kv_target import KvTarget
from kvlife.kernels.numerics import COMPUTE_FORMATS, quantise


def store_kv_reference(
    arena: Tensor, target: KvTarget, layer: int, rows: tuple[Tensor, Tensor], slots: Tensor
) -> None:
    """Store as the contract says; the slots lie in the pool."""
    copies = target.storage.copies(COMPUTE_FORMATS[rows[0].dtype])
    for part, row in zip(target.parts, rows, strict=True):
        flat = row.flatten(1)
        if copies:
            values, scales = flat.contiguous().view(torch.uint8), None
        else:
            values, scales = quantise(flat.float(), target.storage, part.tensor_scales[layer])
        put_rows(arena, target, part.values, layer, slots, values)
        if part.scales is not None and scales is not None:
            put_rows(arena, target, part.scales, layer, slots, scales)
