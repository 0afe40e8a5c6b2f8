"""Narrowing and widening in Triton, the twin of `reference.py`, bit for bit.

The steps and their reasons stand there; here they are short, because a store of bf16 as fp8 is to
run at the speed of memory: about ten integer operations a value, and no branches. Constants come
from `formats.py`, by the format's name. Kernels that use this must be launched with
`enable_fp_fusion=False`: a fused multiply-add rounds once where the reference rounds twice.
"""

import triton
import triton.language as tl

from kvlife.kernels.numerics.formats import BF16, E4M3, FP32

_BF16 = tl.constexpr(BF16)
_FP32 = tl.constexpr(FP32)
_E4M3 = tl.constexpr(E4M3)
_MAGNITUDE = tl.constexpr(0x7FFFFFFF)
_INFINITY = tl.constexpr(0x7F800000)


@triton.constexpr_function
def field(source, name):
    """A property of a `FloatFormat` or `StorageFormat`, for the compiler."""
    return getattr(source, name)


@triton.constexpr_function
def nan_of(source):
    """What NaN becomes in a `FloatFormat`: the largest value where there is none."""
    return source.max_code if source.nan_code is None else source.nan_code


@triton.constexpr_function
def dropped(source):
    """The bits of fp32's mantissa that a format has no room for."""
    return 23 - source.mantissa_bits


@triton.constexpr_function
def same(one, other):
    """Whether two formats are the same."""
    return one == other


@triton.jit
def narrow(values, FORMAT: tl.constexpr):
    """The codes (int32) of fp32 values in a format, sign included."""
    bits = values.to(tl.int32, bitcast=True)
    size = bits & _MAGNITUDE
    if same(FORMAT, _FP32):
        codes = bits
    else:
        clamped = tl.minimum(size, field(FORMAT, "max_finite_bits"))
        rounded = _round_bf16(clamped) if same(FORMAT, _BF16) else _round(clamped, FORMAT)
        codes = rounded | (((bits >> 31) & 1) << (field(FORMAT, "bits") - 1))
    return tl.where(size > _INFINITY, nan_of(FORMAT), codes)


@triton.jit
def _round_bf16(size):
    # The exponents of bf16 are fp32's, so a carry out of the mantissa is right as it falls.
    return (size + 0x7FFF + ((size >> 16) & 1)) >> 16


@triton.jit
def _round(size, FORMAT: tl.constexpr):
    LOWEST: tl.constexpr = field(FORMAT, "min_normal_bits")
    exponent = tl.maximum(size & _INFINITY, LOWEST)
    ruler = exponent + (dropped(FORMAT) << 23)
    total = size.to(tl.float32, bitcast=True) + ruler.to(tl.float32, bitcast=True)
    return total.to(tl.int32, bitcast=True) - ruler + ((exponent - LOWEST) >> dropped(FORMAT))


@triton.jit
def widen(codes, FORMAT: tl.constexpr):
    """The fp32 values of codes (int32), exactly."""
    if same(FORMAT, _FP32):
        values = codes.to(tl.float32, bitcast=True)
    elif same(FORMAT, _BF16):
        values = (codes << 16).to(tl.float32, bitcast=True)
    else:
        values = _widen_short(codes, FORMAT)
    return values


@triton.jit
def _widen_short(codes, FORMAT: tl.constexpr):
    # Shorter exponents pass through fp16, whose widening is exact on every machine.
    SIGN: tl.constexpr = field(FORMAT, "bits") - 1
    LIFT: tl.constexpr = 15 - field(FORMAT, "bias")
    size = codes & ((1 << SIGN) - 1)
    sign = (codes >> SIGN) << 15
    half = (sign | (size << (10 - field(FORMAT, "mantissa_bits")))).to(tl.int16)
    values = half.to(tl.float16, bitcast=True).to(tl.float32)
    if LIFT:
        values = values * (1 << LIFT)
    return tl.where(size > field(FORMAT, "infinity_code"), float("nan"), values)


@triton.jit
def largest_of(blocks):
    """The largest finite magnitude (bits) of each block, along the last axis of three."""
    size = blocks.to(tl.int32, bitcast=True) & _MAGNITUDE
    size = tl.where(size > _INFINITY, 0, tl.minimum(size, _INFINITY - 1))
    return tl.max(size, axis=2)


@triton.jit
def mx_scales(blocks):
    """The inverse (fp32) and the code of each block's e8m0 scale."""
    code = tl.maximum((largest_of(blocks) >> 23) - field(_E4M3, "max_exponent"), 0)
    return ((254 - code) << 23).to(tl.float32, bitcast=True), code


@triton.jit
def fp4_scales(blocks, inverse_scale):
    """The inverse (fp32, the tensor's scale included) and the code of each block's e4m3 scale."""
    bits = blocks.to(tl.int32, bitcast=True)
    has_nan = tl.max(((bits & _MAGNITUDE) > _INFINITY).to(tl.int32), axis=2) > 0
    largest = largest_of(blocks).to(tl.float32, bitcast=True) * inverse_scale
    sixth = tl.div_rn(largest, tl.full(largest.shape, 6.0, tl.float32))
    code = tl.where(has_nan, nan_of(_E4M3), narrow(sixth, _E4M3))
    stored = tl.where(code == 0, 1.0, widen(code, _E4M3))
    ratio = tl.div_rn(tl.zeros_like(stored) + inverse_scale, stored)
    return tl.where(code == 0, 0.0, ratio), code


@triton.jit
def mx_factor(codes):
    """The fp32 value of e8m0 codes (int32)."""
    bits = tl.where(codes == 0, 1 << 22, codes << 23)
    return tl.where(codes == 255, 0x7FC00000, bits).to(tl.float32, bitcast=True)
