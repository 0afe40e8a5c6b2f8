"""The number formats once more, from their specifications, in fp64 and with no cast of torch's.

Field widths, biases and special codes are those of IEEE 754-2019 (fp16), of bf16, of the OCP 8-bit
Floating Point Specification v1.0 (tables 1 and 2), and of the OCP Microscaling Specification v1.0.
"""

import attrs
import numpy as np


@attrs.frozen
class FormatModel:
    """A format by its definition: `largest` is the code of the largest finite magnitude."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    largest: int
    nan: int

    def magnitudes(self):
        """The value (fp64, exact) of each finite code without sign, in order."""
        codes = np.arange(self.largest + 1)
        exponent = codes >> self.mantissa_bits
        fraction = (codes & ((1 << self.mantissa_bits) - 1)) / 2.0**self.mantissa_bits
        scale = np.exp2(np.maximum(exponent, 1) - float(self.bias))
        return np.where(exponent > 0, 1.0 + fraction, fraction) * scale

    def narrow(self, values):
        """Codes of fp64 values: the nearest one, of two as near the even one; NaN is `nan`."""
        table = self.magnitudes()
        size = np.minimum(np.abs(np.nan_to_num(values, nan=0.0, posinf=np.inf)), table[-1])
        above = np.searchsorted(table, size)
        below = np.maximum(above - 1, 0)
        up, down = table[above] - size, size - table[below]
        nearest = np.where(up < down, above, below)
        nearest = np.where(up == down, np.where(above % 2, below, above), nearest)
        sign = np.signbit(values).astype(np.int64) << (self.exponent_bits + self.mantissa_bits)
        return np.where(np.isnan(values), self.nan, nearest | sign)


MODELS = {
    "fp16": FormatModel(5, 10, 15, 0x7BFF, 0x7E00),
    "bf16": FormatModel(8, 7, 127, 0x7F7F, 0x7FC0),
    "e4m3": FormatModel(4, 3, 7, 0x7E, 0x7F),
    "e5m2": FormatModel(5, 2, 15, 0x7B, 0x7F),
    # e2m1 has no NaN: the largest value stands for it, and the scale of the block says NaN.
    "e2m1": FormatModel(2, 1, 1, 0x7, 0x7),
}
