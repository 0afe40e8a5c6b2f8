"""How far a stored value can be from the value that was stored: computed from the formats."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.numerics.formats import E4M3, FloatFormat, StorageFormat

# Up to four roundings of fp32: of a scale's inverse, of two products, of a quotient.
FP32_ARITHMETIC = 4 * 2.0**-24


def error_bound(rows: Tensor, storage: StorageFormat, scale: float = 1.0) -> Tensor:
    """A bound (fp64) of |dequantised - value| for each finite value of rows [n, width].

    Rounding to nearest is off by half a step, and clamping by what lies beyond the largest value.
    Steps count in units of the scale: the tensor's; for e8m0 a power of two, 2^-8 to 2^-9 of the
    block's largest, so that up to 448/512 of it is in range; for e4m3 a sixth of the block's
    largest, give or take the rounding of that scale itself.
    """
    size = rows.double().abs()
    values = storage.values
    if storage.block is None:
        return scale * _rounding(size / scale, values) + _arithmetic(size, storage)
    blocks = size.unflatten(-1, (-1, storage.block))
    largest = blocks.amax(-1, keepdim=True)
    if storage.block_scale == "e8m0":
        exponent = torch.frexp(largest).exponent - 1 - E4M3.max_exponent
        unit = torch.where(largest > 0, exponent.double(), -127.0).clamp(min=-127).exp2()
        return (unit * _rounding(blocks / unit, values)).flatten(-2)
    sixth = largest / (values.max_finite * scale)
    give = _rounding(sixth, E4M3)
    most, least = (sixth + give) * scale, (sixth - give).clamp(min=0) * scale
    bound = torch.maximum(blocks * values.unit_roundoff, most * values.smallest / 2)
    bound = torch.maximum(bound, blocks - least * values.max_finite)
    return bound.flatten(-2) + _arithmetic(size, storage)


def _rounding(size: Tensor, target: FloatFormat) -> Tensor:
    half_step = (size * target.unit_roundoff).clamp(min=target.smallest / 2)
    return torch.maximum(half_step, size - target.max_finite)


def _arithmetic(size: Tensor, storage: StorageFormat) -> Tensor:
    return size * FP32_ARITHMETIC if storage.quantises else torch.zeros_like(size)
