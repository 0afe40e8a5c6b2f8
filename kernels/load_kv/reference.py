"""`load_kv` in torch."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.kv_rows import take_rows
from kvlife.kernels.kv_target import KvPart, KvTarget
from kvlife.kernels.numerics import COMPUTE_FORMATS, dequantise, narrow_to


def load_kv_reference(
    arena: Tensor, target: KvTarget, layer: int, slots: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Load as the contract says; the slots lie in the pool."""
    first, second = target.parts
    return (
        _load_part(arena, target, first, layer, slots, dtype),
        _load_part(arena, target, second, layer, slots, dtype),
    )


def _load_part(
    arena: Tensor,
    target: KvTarget,
    part: KvPart,
    layer: int,
    slots: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    values = take_rows(arena, target, part.values, layer, slots)
    if target.storage.copies(COMPUTE_FORMATS[dtype]):
        loaded = values.view(dtype)
    else:
        scales = part.scales and take_rows(arena, target, part.scales, layer, slots)
        scale = part.tensor_scales[layer]
        loaded = narrow_to(dequantise(values, scales, target.storage, scale), dtype)
    return loaded.unflatten(1, part.shape)
