"""Narrowing and widening in Triton, the twin of `reference.py`, bit for bit.

The steps and their reasons stand there; here they are folded into fewer, because a store of bf16 as
fp8 is to run at the speed of memory: 17 instructions a value on sm_90, and no branch. Constants
come from `formats.py`; a constexpr may be a format. Kernels that use this must be launched with
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
def lowest(source):
    """The bits of the smallest normal value of a format: below it the step stays the same."""
    return source.min_normal_bits


@triton.constexpr_function
def ruler_over_exponent(source):
    """What makes of an exponent's bits the ruler that a magnitude is rounded by.

    The ruler's last bit is the step. Beside it there stands, in bits that rounding leaves alone,
    what takes the bias off: the low bits of the sum are those of the code, once its high bits,
    where the exponent is, are added to them. It is even, so that ties stay ties to even.
    """
    lost = 23 - source.mantissa_bits
    bias = (source.min_normal_bits + (lost << 23)) >> lost
    offset = -bias % (1 << source.bits)
    assert offset % 2 == 0
    assert offset + (2 << source.mantissa_bits) < 1 << lost
    return (lost << 23) + offset


@triton.constexpr_function
def same(one, other):
    """Whether two formats are the same."""
    return one == other


@triton.jit
def narrow(values, FORMAT: tl.constexpr):
    """The codes (int32) of fp32 values in a format, sign included."""
    bits = values.to(tl.int32, bitcast=True)
    if same(FORMAT, _FP32):
        codes = bits
    else:
        BITS: tl.constexpr = field(FORMAT, "bits")
        rounded = _round_bf16(bits) if same(FORMAT, _BF16) else _round(values, FORMAT)
        codes = rounded | ((bits >> (32 - BITS)) & (1 << (BITS - 1)))
    # NaN alone differs from itself.
    is_nan = values != values  # noqa: PLR0124
    return tl.where(is_nan, nan_of(FORMAT), codes)


@triton.jit
def _round_bf16(bits):
    # The exponents of bf16 are fp32's, so a carry out of the mantissa is right as it falls.
    size = tl.minimum(bits & _MAGNITUDE, field(_BF16, "max_finite_bits"))
    return (size + 0x7FFF + ((size >> 16) & 1)) >> 16


@triton.jit
def _round(values, FORMAT: tl.constexpr):
    # The order of magnitudes is that of their bits; as values, taking the sign off costs nothing.
    size = tl.minimum(tl.abs(values), field(FORMAT, "max_finite"))
    exponent = tl.maximum(size.to(tl.int32, bitcast=True) & _INFINITY, lowest(FORMAT))
    ruler = (exponent + ruler_over_exponent(FORMAT)).to(tl.float32, bitcast=True)
    total = (size + ruler).to(tl.int32, bitcast=True)
    return (total + (total >> dropped(FORMAT))) & ((1 << field(FORMAT, "bits")) - 1)


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
def mx_scales(blocks):
    """The inverse (fp32) and the code of each block's e8m0 scale, along the last axis of three."""
    # Of a NaN and a number the larger is the number, so that NaN counts only among its like.
    bits = tl.max(tl.abs(blocks), axis=2).to(tl.int32, bitcast=True)
    largest = tl.where(bits > _INFINITY, 0, tl.minimum(bits, _INFINITY - 1))
    code = tl.maximum((largest >> 23) - field(_E4M3, "max_exponent"), 0)
    return ((254 - code) << 23).to(tl.float32, bitcast=True), code


@triton.jit
def fp4_scales(blocks, inverse_scale):
    """The inverse (fp32, the tensor's scale included) and the code of each block's e4m3 scale."""
    # The bits of NaN are above those of all numbers.
    bits = tl.max(blocks.to(tl.int32, bitcast=True) & _MAGNITUDE, axis=2)
    largest = tl.where(bits > _INFINITY, 0, tl.minimum(bits, _INFINITY - 1))
    scaled = largest.to(tl.float32, bitcast=True) * inverse_scale
    sixth = tl.div_rn(scaled, tl.full(scaled.shape, 6.0, tl.float32))
    code = tl.where(bits > _INFINITY, nan_of(_E4M3), narrow(sixth, _E4M3))
    stored = tl.where(code == 0, 1.0, widen(code, _E4M3))
    ratio = tl.div_rn(tl.zeros_like(stored) + inverse_scale, stored)
    return tl.where(code == 0, 0.0, ratio), code


@triton.jit
def mx_factor(codes):
    """The fp32 value of e8m0 codes (int32)."""
    bits = tl.where(codes == 0, 1 << 22, codes << 23)
    return tl.where(codes == 255, 0x7FC00000, bits).to(tl.float32, bitcast=True)
