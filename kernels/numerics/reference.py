"""Narrowing and widening in torch, the twin of `kernel.py`, bit for bit.

Narrowing to a stored value, in this order:

1. NaN becomes the format's one NaN, positive, whatever its sign and payload were. e2m1 has none:
   there NaN becomes the largest value, and `quantise` makes the block's scale NaN, so that the
   whole block reads as NaN.
2. The magnitude is clamped to the largest finite value, infinity too: nothing overflows later.
3. It is rounded to nearest, ties to even (IEEE 754-2019, 4.3.1), to the format's step at its
   magnitude, which is the step of subnormal values below the smallest normal one. The sign stays,
   that of zero too.

No cast takes part: torch's saturate for one format and overflow for another, Triton's interpreter
truncates, and older GPUs have none. It is integer arithmetic on the bits of fp32. One step of it is
done by the fp32 adder, which IEEE 754 makes the same everywhere: adding 2^(e+23-m), whose last bit
is the step, rounds the magnitude to a multiple of the step, and integers take it off again.
"""

from __future__ import annotations

import struct

import torch
from torch import Tensor

from kvlife.kernels.numerics.formats import (
    BF16,
    E4M3,
    E8M0_NAN,
    FP16,
    FP32,
    FloatFormat,
    StorageFormat,
)

# The dtypes that KV is computed in.
COMPUTE_FORMATS = {torch.bfloat16: BF16, torch.float16: FP16, torch.float32: FP32}
MAGNITUDE = 0x7FFFFFFF
INFINITY = 0x7F800000


def fp32(value: float) -> float:
    """The fp32 value nearest to a Python float."""
    (nearest,) = struct.unpack("<f", struct.pack("<f", value))
    return float(nearest)


def narrow(values: Tensor, target: FloatFormat) -> Tensor:
    """The codes (int32) of fp32 values in a format, sign included."""
    bits = values.contiguous().view(torch.int32)
    size = bits & MAGNITUDE
    if target is FP32:
        return torch.where(size > INFINITY, FP32.nan_code, bits)
    clamped = size.clamp(max=target.max_finite_bits)
    rounded = _round_bf16(clamped) if target is BF16 else _round(clamped, target)
    codes = rounded | (((bits >> 31) & 1) << (target.bits - 1))
    nan = target.max_code if target.nan_code is None else target.nan_code
    return torch.where(size > INFINITY, nan, codes)


def _round_bf16(size: Tensor) -> Tensor:
    # The exponents of bf16 are fp32's, so a carry out of the mantissa is right as it falls.
    return (size + 0x7FFF + ((size >> 16) & 1)) >> 16


def _round(size: Tensor, target: FloatFormat) -> Tensor:
    dropped = 23 - target.mantissa_bits
    lowest = target.min_normal_bits
    exponent = (size & INFINITY).clamp(min=lowest)
    ruler = exponent + (dropped << 23)
    total = (size.view(torch.float32) + ruler.view(torch.float32)).view(torch.int32)
    return total - ruler + ((exponent - lowest) >> dropped)


def widen(codes: Tensor, source: FloatFormat) -> Tensor:
    """The fp32 values of codes (int32), exactly; infinities and NaN where the format has them."""
    if source is FP32:
        return codes.view(torch.float32)
    if source is BF16:
        return (codes << 16).view(torch.float32)
    # Shorter exponents pass through fp16, whose widening is exact on every machine.
    size = codes & ((1 << (source.bits - 1)) - 1)
    sign = (codes >> (source.bits - 1)) << 15
    half = (sign | size << (FP16.mantissa_bits - source.mantissa_bits)).to(torch.int16)
    values = half.view(torch.float16).to(torch.float32) * 2.0 ** (FP16.bias - source.bias)
    return torch.where(size > source.infinity_code, torch.nan, values)


def narrow_to(values: Tensor, dtype: torch.dtype) -> Tensor:
    """fp32 values in a compute dtype: bf16, fp16 or fp32."""
    codes = narrow(values, COMPUTE_FORMATS[dtype])
    return codes.to({2: torch.int16, 4: torch.int32}[dtype.itemsize]).view(dtype)


def quantise(rows: Tensor, storage: StorageFormat, scale: float) -> tuple[Tensor, Tensor | None]:
    """The bytes of rows [n, width] of fp32 values, and those of their block scales.

    `scale` is the tensor's: stored values times block scale times it are the values again. Bytes
    are uint8 [n, value bytes] (fp4: the even value in the low half) and [n, width / block].
    """
    if storage.block is None:
        return _value_bytes(narrow(_scaled(rows, scale), storage.values), storage.values), None
    blocks = rows.unflatten(-1, (-1, storage.block))
    ratio, scales = (
        _mx_scales(blocks) if storage.block_scale == "e8m0" else _fp4_scales(blocks, scale)
    )
    codes = narrow(blocks * ratio[..., None], storage.values).flatten(-2)
    return _value_bytes(codes, storage.values), scales.to(torch.uint8)


def _scaled(rows: Tensor, scale: float) -> Tensor:
    return rows if scale == 1.0 else rows * fp32(1.0 / scale)


def _largest(blocks: Tensor) -> Tensor:
    """The largest finite magnitude (bits) of each block; infinity counts as the largest finite."""
    size = blocks.contiguous().view(torch.int32) & MAGNITUDE
    size = torch.where(size > INFINITY, 0, size.clamp(max=INFINITY - 1))
    return size.amax(dim=-1)


def _mx_scales(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """MX specification 6.3: 2^(floor(log2(largest)) - emax), at least 2^-127; and its inverse."""
    code = ((_largest(blocks) >> 23) - E4M3.max_exponent).clamp(min=0)
    return ((254 - code) << 23).view(torch.float32), code


def _fp4_scales(blocks: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """e4m3 of largest / (6 scale), NaN for a block that holds one; and 1 / (scale that)."""
    inverse = torch.tensor(fp32(1.0 / scale), device=blocks.device)
    sixth = _largest(blocks).view(torch.float32) * inverse / 6.0
    code = torch.where(blocks.isnan().any(-1), E4M3.nan_code, narrow(sixth, E4M3))
    stored = torch.where(code == 0, 1.0, widen(code, E4M3))
    return torch.where(code == 0, 0.0, inverse / stored), code


def _value_bytes(codes: Tensor, values: FloatFormat) -> Tensor:
    if values.bits == 4:
        low, high = codes.unflatten(-1, (-1, 2)).unbind(-1)
        return (low | high << 4).to(torch.uint8)
    word = {8: torch.uint8, 16: torch.int16, 32: torch.int32}[values.bits]
    return codes.to(word).view(torch.uint8)


def dequantise(
    values: Tensor, scales: Tensor | None, storage: StorageFormat, scale: float
) -> Tensor:
    """The fp32 values of rows of bytes, as `quantise` made them: value x (block scale x scale)."""
    rows = widen(_value_codes(values, storage.values), storage.values)
    if scales is None:
        return rows if scale == 1.0 else rows * fp32(scale)
    codes = scales.to(torch.int32)
    factor = (
        _mx_factor(codes) if storage.block_scale == "e8m0" else widen(codes, E4M3) * fp32(scale)
    )
    return (rows.unflatten(-1, (-1, storage.block)) * factor[..., None]).flatten(-2)


def _mx_factor(codes: Tensor) -> Tensor:
    # 2^-127, the least scale, is subnormal in fp32.
    bits = torch.where(codes == 0, 1 << 22, codes << 23)
    return torch.where(codes == E8M0_NAN, FP32.nan_code, bits).view(torch.float32)


def _value_codes(values: Tensor, source: FloatFormat) -> Tensor:
    values = values.contiguous()
    if source.bits == 4:
        codes = values.to(torch.int32)
        return torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2)
    if source.bits == 8:
        return values.to(torch.int32)
    if source.bits == 16:
        return values.view(torch.int16).to(torch.int32) & 0xFFFF
    return values.view(torch.int32)
