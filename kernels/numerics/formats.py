"""The number formats of stored KV, by their definitions, and what they cost in bytes.

Sources: IEEE 754-2019 (fp32, fp16), its truncation bf16, the OCP 8-bit Floating Point Specification
(OFP8) v1.0 for e4m3 and e5m2, and the OCP Microscaling Formats (MX) Specification v1.0 for e2m1,
e8m0 and blocks of 32. NVFP4 (blocks of 16 under e4m3 scales and a tensor's scale) is NVIDIA's, as
PTX ISA and TensorRT describe it.
"""

import struct
from collections.abc import Mapping
from types import MappingProxyType

import attrs

from kvlife.kernels.dispatch import KernelError


def bits_of(value: float) -> int:
    """The bits of a value in fp32, which must hold it exactly."""
    (bits,) = struct.unpack("<i", struct.pack("<f", value))
    return int(bits)


@attrs.frozen(kw_only=True)
class FloatFormat:
    """A binary floating-point format: a sign, `exponent_bits`, `mantissa_bits`, and a bias.

    `max_code` is the code of the largest finite value, `nan_code` that of the NaN we write (both
    without the sign); a format with None has no NaN.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    max_code: int
    nan_code: int | None

    @property
    def bits(self) -> int:
        """Bits of one value, the sign included."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def min_exponent(self) -> int:
        """The exponent of the smallest normal value; subnormal values share it."""
        return 1 - self.bias

    @property
    def max_exponent(self) -> int:
        """The exponent of the largest finite value: emax of the MX specification."""
        return (self.max_code >> self.mantissa_bits) - self.bias

    @property
    def max_finite(self) -> float:
        """The largest finite value."""
        return self.value(self.max_code)

    @property
    def max_finite_bits(self) -> int:
        """The largest finite value as fp32 has it, bit for bit."""
        return bits_of(self.max_finite)

    @property
    def min_normal_bits(self) -> int:
        """The smallest normal value as fp32 has it, bit for bit."""
        return bits_of(2.0**self.min_exponent)

    @property
    def smallest(self) -> float:
        """The smallest value above zero, a subnormal one: the step of all values below normal."""
        return 2.0 ** (self.min_exponent - self.mantissa_bits)

    @property
    def infinity_code(self) -> int:
        """The code of infinity where the format has one, else of the largest value: NaN is above.

        e4m3 gave its infinities to finite values (OFP8); e2m1 has neither infinity nor NaN.
        """
        top = (1 << self.exponent_bits) - 1
        has_infinity = self.max_code >> self.mantissa_bits < top
        return top << self.mantissa_bits if has_infinity else self.max_code

    @property
    def unit_roundoff(self) -> float:
        """The largest relative error of rounding a value in the normal range to nearest."""
        return 2.0 ** -(self.mantissa_bits + 1)

    def value(self, code: int) -> float:
        """The value of a finite code without sign, by the definition of the format."""
        exponent, mantissa = divmod(code, 1 << self.mantissa_bits)
        if exponent == 0:
            return mantissa * self.smallest
        significand = 1 + mantissa / (1 << self.mantissa_bits)
        return float(significand * 2.0 ** (exponent - self.bias))


def _float(
    name: str,
    exponent_bits: int,
    mantissa_bits: int,
    max_code: int,
    nan_code: int | None,
) -> FloatFormat:
    return FloatFormat(
        name=name,
        exponent_bits=exponent_bits,
        mantissa_bits=mantissa_bits,
        bias=(1 << (exponent_bits - 1)) - 1,
        max_code=max_code,
        nan_code=nan_code,
    )


FP32 = _float("fp32", 8, 23, 0x7F7FFFFF, 0x7FC00000)
FP16 = _float("fp16", 5, 10, 0x7BFF, 0x7E00)
BF16 = _float("bf16", 8, 7, 0x7F7F, 0x7FC0)
E4M3 = _float("e4m3", 4, 3, 0x7E, 0x7F)
E5M2 = _float("e5m2", 5, 2, 0x7B, 0x7F)
E2M1 = _float("e2m1", 2, 1, 0x7, None)

# e8m0 is an exponent alone: code c stands for 2^(c - 127), and 255 for NaN.
E8M0_NAN = 255


@attrs.frozen(kw_only=True)
class StorageFormat:
    """How one row of values is stored: the format of its values, and the scales beside them.

    `block` values share one scale byte of format `block_scale` ("e8m0" or "e4m3"); None where there
    are no blocks. `tensor_scale` says whether a scale for the whole tensor, given at configuration,
    divides the values first.
    """

    name: str
    values: FloatFormat
    block: int | None = None
    block_scale: str | None = None
    tensor_scale: bool = False

    @property
    def quantises(self) -> bool:
        """Whether values stand under scales, of a tensor or of blocks."""
        return self.tensor_scale or self.block is not None

    def copies(self, values: FloatFormat) -> bool:
        """Whether values of this format are stored as they come, bit for bit."""
        return values == self.values and not self.quantises

    @property
    def granularity(self) -> int:
        """What the width of a row must be a multiple of: a whole block, a whole byte."""
        return self.block or 1

    @property
    def word_bytes(self) -> int:
        """Bytes of what values are written in: one value, or a pair of e2m1."""
        return max(self.values.bits // 8, 1)

    def value_bytes(self, width: int) -> int:
        """Bytes of `width` values; raises `KernelError` where blocks do not divide them."""
        self.check_width(width)
        return width * self.values.bits // 8

    def scale_bytes(self, width: int) -> int:
        """Bytes of the scales of `width` values: one a block."""
        self.check_width(width)
        return 0 if self.block is None else width // self.block

    def check_width(self, width: int) -> None:
        """Raise `KernelError` where a row of `width` values cannot be stored in this format."""
        if width < 1 or width % self.granularity:
            raise KernelError(
                f"{self.name} stores blocks of {self.granularity} values, and a width of {width} is"
                f" no whole number of them; use a multiple of {self.granularity}, or another dtype"
            )


def _storages() -> Mapping[str, StorageFormat]:
    known = (
        StorageFormat(name="bf16", values=BF16),
        StorageFormat(name="fp16", values=FP16),
        StorageFormat(name="fp32", values=FP32),
        StorageFormat(name="fp8_e4m3", values=E4M3, tensor_scale=True),
        StorageFormat(name="fp8_e5m2", values=E5M2, tensor_scale=True),
        StorageFormat(name="mxfp8", values=E4M3, block=32, block_scale="e8m0"),
        StorageFormat(name="nvfp4", values=E2M1, block=16, block_scale="e4m3", tensor_scale=True),
    )
    return MappingProxyType({storage.name: storage for storage in known})


STORAGE_FORMATS = _storages()


def storage_format(name: str) -> StorageFormat:
    """The storage format of this name; raises `KernelError` listing the known ones."""
    try:
        return STORAGE_FORMATS[name]
    except (KeyError, TypeError):
        known = ", ".join(STORAGE_FORMATS)
        raise KernelError(f"no KV dtype is called {name!r}; known are {known}") from None
