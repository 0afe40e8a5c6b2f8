"""Narrowing and widening against the definitions of the formats, exhaustively where short."""

import math

import numpy as np
import pytest
import torch
from format_model import MODELS

from kvlife.kernels import numerics
from kvlife.kernels.numerics import BF16, E2M1, E4M3, E5M2, FP16, FP32, narrow, widen

FORMATS = {one.name: one for one in (BF16, FP16, E4M3, E5M2, E2M1)}
ALL_16_BITS = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)


def codes_of(values, target):
    return narrow(torch.tensor(values, dtype=torch.float32), target).tolist()


def every_value_of(dtype):
    """All 65,536 values of bf16 or fp16, in fp32, which holds them exactly."""
    return ALL_16_BITS.view(dtype).float()


def hard_values(seed):
    """fp32 values of all magnitudes, and those around each tie and each end of each format."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 32, 200_000, dtype=np.uint64).astype(np.uint32)
    near = [bits.view(np.float32)]
    for model in MODELS.values():
        table = model.magnitudes()
        with np.errstate(over="ignore"):
            ties = ((table[1:] + table[:-1]) / 2).astype(np.float32)
        for way in (0.0, np.inf, -np.inf):
            near += [np.nextafter(ties, np.float32(way)), ties]
    near.append(np.array([np.inf, 0.0, np.nan, 3.4028234e38, 1e-45], dtype=np.float32))
    values = np.concatenate(near)
    return torch.from_numpy(np.concatenate([values, -values]))


def assert_narrowed(values, name):
    wanted = MODELS[name].narrow(values.double().numpy())
    found = narrow(values, FORMATS[name]).numpy()
    wrong = np.flatnonzero(found != wanted)
    assert not len(wrong), (values[wrong[:5]], found[wrong[:5]], wanted[wrong[:5]])


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_every_bf16_and_fp16_value_is_narrowed_as_the_definition_says(name, dtype):
    """All 65,536 inputs of each compute dtype go to the nearest code, ties to even."""
    assert_narrowed(every_value_of(dtype), name)


@pytest.mark.parametrize("name", FORMATS)
def test_fp32_values_are_narrowed_as_the_definition_says(name, seed):
    """Random fp32 bits, and the neighbours of every tie, go to the nearest code, ties to even."""
    assert_narrowed(hard_values(seed), name)


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_is_widened_to_its_value(name):
    """Finite codes give their value exactly; others are infinity and NaN as the format has them."""
    target = FORMATS[name]
    model = MODELS[name]
    sizes = np.arange(1 << (target.bits - 1))
    wanted = np.full(len(sizes), np.nan)
    wanted[: model.largest + 1] = model.magnitudes()
    if name in ("fp16", "bf16", "e5m2"):
        wanted[model.largest + 1] = np.inf
    for sign in (0, 1):
        codes = torch.from_numpy(sizes | sign << (target.bits - 1)).int()
        found = widen(codes, target)
        np.testing.assert_array_equal(found.double().numpy(), -wanted if sign else wanted)
        zero = codes[0:1]
        assert math.copysign(1.0, widen(zero, target).item()) == (-1.0 if sign else 1.0)


@pytest.mark.parametrize(
    ("target", "value", "code"),
    [
        (E4M3, 1.0, 0x38),
        (E4M3, 1.0625, 0x38),  # half-way between 1 (0x38) and 1.125 (0x39)
        (E4M3, 1.1875, 0x3A),  # half-way between 1.125 (0x39) and 1.25 (0x3A)
        (E4M3, -1.1875, 0xBA),
        (E4M3, 448.0, 0x7E),
        (E4M3, 464.0, 0x7E),  # where another step would be half-way: no NaN code is reached
        (E4M3, 1e30, 0x7E),
        (E4M3, math.inf, 0x7E),
        (E4M3, -math.inf, 0xFE),
        (E4M3, math.nan, 0x7F),
        (E4M3, 2.0**-9, 0x01),  # the smallest subnormal
        (E4M3, 2.0**-10, 0x00),  # half of it: a tie with zero, which is even
        (E4M3, -(2.0**-10), 0x80),
        (E4M3, 1.0001 * 2.0**-10, 0x01),
        (E4M3, 3 * 2.0**-10, 0x02),  # half-way between the first two subnormals
        (E4M3, 15 * 2.0**-10, 0x08),  # half-way between the last subnormal and the first normal
        (E5M2, 1.125, 0x3C),  # half-way between 1 (0x3C) and 1.25 (0x3D)
        (E5M2, 1.375, 0x3E),
        (E5M2, 57344.0, 0x7B),
        (E5M2, 61440.0, 0x7B),  # IEEE 754 would give infinity here
        (E5M2, math.inf, 0x7B),
        (E5M2, 2.0**-16, 0x01),
        (E5M2, 2.0**-17, 0x00),
        (E5M2, math.nan, 0x7F),
        (E2M1, 0.25, 0x0),  # half-way between 0 and 0.5
        (E2M1, 0.75, 0x2),  # half-way between 0.5 (1) and 1 (2)
        (E2M1, 2.5, 0x4),  # half-way between 2 (4) and 3 (5)
        (E2M1, 3.5, 0x6),  # half-way between 3 (5) and 4 (6)
        (E2M1, 5.0, 0x6),  # half-way between 4 (6) and 6 (7)
        (E2M1, 5.0625, 0x7),
        (E2M1, -6.0, 0xF),
        (E2M1, math.inf, 0x7),
        (E2M1, math.nan, 0x7),
        (FP16, 65504.0, 0x7BFF),
        (FP16, 65520.0, 0x7BFF),  # IEEE 754 would give infinity here
        (FP16, 2.0**-24, 0x0001),
        (FP16, 2.0**-25, 0x0000),
        (FP16, 1 + 2.0**-11, 0x3C00),
        (FP16, 1 + 3 * 2.0**-11, 0x3C02),
        (BF16, 1 + 2.0**-8, 0x3F80),
        (BF16, 1 + 3 * 2.0**-8, 0x3F82),
        (BF16, 3.4028234663852886e38, 0x7F7F),  # the largest fp32
        (BF16, math.inf, 0x7F7F),
        (BF16, -math.nan, 0x7FC0),
        (BF16, 2.0**-134, 0x0000),  # half of the smallest subnormal
        (BF16, 3 * 2.0**-134, 0x0002),
    ],
)
def test_ties_ends_and_subnormals_by_hand(target, value, code):
    """Values whose codes one works out on paper."""
    assert codes_of([value], target) == [code]


def test_the_formats_have_the_constants_of_their_specifications():
    """Largest values, smallest subnormals and biases as the specifications print them."""
    assert (E4M3.max_finite, E4M3.smallest, E4M3.bias, E4M3.max_exponent) == (448, 2**-9, 7, 8)
    assert (E5M2.max_finite, E5M2.smallest, E5M2.bias) == (57344, 2**-16, 15)
    assert (E2M1.max_finite, E2M1.smallest, E2M1.bias) == (6, 0.5, 1)
    assert (FP16.max_finite, FP16.smallest) == (65504, 2**-24)
    assert (BF16.max_finite, BF16.smallest) == ((2 - 2**-7) * 2.0**127, 2.0**-133)
    assert [E2M1.value(code) for code in range(8)] == [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def test_fp32_stays_as_it_is_but_for_the_bits_of_nan():
    """Widening is no narrowing: infinity stays, and only NaN gets the one NaN there is."""
    values = torch.tensor([1.5, -0.0, math.inf, -math.inf, 1e-45])
    assert torch.equal(narrow(values, FP32), values.view(torch.int32))
    odd_nan = torch.tensor([-1], dtype=torch.int32).view(torch.float32)
    assert narrow(odd_nan, FP32).tolist() == [0x7FC00000]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_compute_dtype_is_torch_s_own_bits(dtype):
    """What `narrow_to` gives has the value that the code stands for in torch."""
    values = torch.tensor([1.0, -2.5, 65504.0, 2.0**-14])
    assert torch.equal(numerics.narrow_to(values, dtype).double(), values.to(dtype).double())


def test_an_unknown_storage_format_names_the_known_ones():
    """The error lists what there is."""
    with pytest.raises(numerics.formats.KernelError, match="known are bf16, fp16, fp32"):
        numerics.storage_format("fp7")


@pytest.mark.parametrize(("name", "width"), [("mxfp8", 48), ("nvfp4", 24), ("bf16", 0)])
def test_a_width_that_is_no_whole_number_of_blocks_is_refused(name, width):
    """Blocks of 32 and of 16 divide the width, and a row has values."""
    with pytest.raises(numerics.formats.KernelError, match=f"width of {width}"):
        numerics.storage_format(name).value_bytes(width)
