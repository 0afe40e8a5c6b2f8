"""Rows quantised under scales: bytes by hand, and errors against fp64 and their bound."""

import math

import pytest
import torch
from format_model import MODELS

from kvlife.kernels.kv_target import KernelError, checked_scale
from kvlife.kernels.numerics import (
    STORAGE_FORMATS,
    dequantise,
    error_bound,
    quantise,
    storage_format,
)

SCALES = {True: (1.0, 0.0371, 11.0), False: (1.0,)}
CASES = [
    (name, scale) for name, one in STORAGE_FORMATS.items() for scale in SCALES[one.tensor_scale]
]


def row_of(values, width):
    """One row: these values, then zeros."""
    row = torch.zeros(1, width)
    row[0, : len(values)] = torch.tensor(values)
    return row


def quantised(name, values, scale=1.0):
    """The bytes of the values of one block, and of its scale, as lists."""
    storage = storage_format(name)
    width = storage.block or len(values)
    found, scales = quantise(row_of(values, width), storage, scale)
    back = dequantise(found, scales, storage, scale)
    return found[0].tolist(), None if scales is None else scales[0].tolist(), back[0].tolist()


def test_a_tensor_s_scale_divides_what_fp8_stores():
    """8 under a scale of 4 is stored as 2 (0x40), and comes back as 8."""
    assert quantised("fp8_e4m3", [8.0, -8.0], 4.0) == ([0x40, 0xC0], None, [8.0, -8.0])
    assert quantised("fp8_e5m2", [8.0, math.inf], 4.0) == ([0x40, 0x7B], None, [8.0, 4 * 57344])


@pytest.mark.parametrize(
    ("values", "scale", "codes", "back"),
    [
        # floor(log2 1) - 8 = -8, so the scale is 2^-8 (code 127 - 8) and 1 is stored as 256.
        ([1.0, 0.5, -1.0], 119, [0x78, 0x70, 0xF8], [1.0, 0.5, -1.0]),
        # 1.99 is floored to the same scale; 509 is beyond 448, and comes back as 448 / 256.
        ([1.99], 119, [0x7E], [1.75]),
        # 256 / 2^-8 would round up to the next power of two; the specification floors.
        ([480.0], 127, [0x7E], [448.0]),
        ([2.0**-119], 0, [0x78], [2.0**-119]),
        # Below that the scale stays 2^-127: 2^-130 is stored as 2^-3, 2^-137 as half a subnormal.
        ([2.0**-130], 0, [0x20], [2.0**-130]),
        ([2.0**-137], 0, [0x00], [0.0]),
        ([0.0, -0.0], 0, [0x00, 0x80], [0.0, -0.0]),
        # Infinity counts as the largest fp32, 2^127 and a bit, and is stored as 448.
        ([math.inf, 1.0], 246, [0x7E, 0x00], [448 * 2.0**119, 0.0]),
    ],
)
def test_mxfp8_by_hand(values, scale, codes, back):
    """The scale is the floor of the block's largest exponent less that of 448 (MX spec, 6.3)."""
    found = quantised("mxfp8", values)
    rest = [0] * (32 - len(values))
    assert found[:2] == (codes + rest, [scale])
    assert found[2] == back + rest


def test_nan_in_mxfp8_is_one_value_and_not_its_block():
    """NaN stays NaN, the largest value is that of the others, and they are stored as ever."""
    codes, scales, back = quantised("mxfp8", [math.nan, 1.0])
    assert (codes[:2], scales) == ([0x7F, 0x78], [119])
    assert math.isnan(back[0])
    assert back[1] == 1.0


@pytest.mark.parametrize(
    ("values", "tensor_scale", "scale", "packed", "back"),
    [
        # 6 / 6 = 1 (0x38). Codes 7, 5 (3), 10 (-1), 1 (0.5): two a byte, the even one low.
        ([6.0, 3.0, -1.0, 0.5], 1.0, 0x38, [0x57, 0x1A], [6.0, 3.0, -1.0, 0.5]),
        # Under a tensor's scale of 1/2 the block's is 6 / 6 / (1/2) = 2 (0x40).
        ([6.0, 3.0, -1.0, 0.5], 0.5, 0x40, [0x57, 0x1A], [6.0, 3.0, -1.0, 0.5]),
        # 6.375 / 6 = 1.0625 is half-way between 1 and 1.125: the scale is 1, and 6.375 is clamped.
        ([6.375], 1.0, 0x38, [0x07], [6.0]),
        # 9 / 6 = 1.5 (0x3C); 3 / 1.5 = 2 (code 4); 1.125 / 1.5 = 0.75, a tie, to 1 (code 2).
        ([9.0, 3.0, 1.125], 1.0, 0x3C, [0x47, 0x02], [9.0, 3.0, 1.5]),
        # 448 is the largest scale: 2,688 is the largest value.
        ([5000.0, -math.inf], 1.0, 0x7E, [0xF7], [2688.0, -2688.0]),
        # 6 x 2^-10 / 6 is half of the smallest scale, a tie with zero: all of the block is zero.
        ([6 * 2.0**-10], 1.0, 0x00, [0x00], [0.0]),
        # Three quarters of the smallest scale go to it: 4.5 of it is stored as 4.
        ([9 * 2.0**-10], 1.0, 0x01, [0x06], [4 * 2.0**-9]),
    ],
)
def test_nvfp4_by_hand(values, tensor_scale, scale, packed, back):
    """Scales are e4m3 of the block's largest / 6 / the tensor's scale, and values e2m1 under it."""
    codes, scales, found = quantised("nvfp4", values, tensor_scale)
    assert (codes, scales) == (packed + [0] * (8 - len(packed)), [scale])
    assert found[: len(back)] == back


def test_nan_in_nvfp4_makes_its_block_nan():
    """e2m1 has no NaN, so the scale says it, for the 16 values of the block and for no other."""
    storage = storage_format("nvfp4")
    row = row_of([6.0] * 32, 32)
    row[0, 5] = math.nan
    codes, scales = quantise(row, storage, 1.0)
    assert scales.tolist()[0][0] == 0x7F
    back = dequantise(codes, scales, storage, 1.0)[0]
    assert back[:16].isnan().all()
    assert (back[16:] == 6.0).all()


def rows_of_all_sizes(seed):
    """Rows of 128 values whose magnitudes spread over 2^-12 to 2^12, some far beyond in a row."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(1500, 128, generator=generator)
    rows *= torch.exp2(torch.randn(1500, 1, generator=generator) * 4)
    return rows * torch.exp2((torch.rand(1500, 128, generator=generator) < 0.02) * 6.0)


@pytest.mark.parametrize(("name", "scale"), CASES)
def test_errors_against_fp64_stay_within_the_bound_of_the_format(name, scale, seed):
    """No value is further off than the bound; the bound is no wider than it must be."""
    storage = storage_format(name)
    rows = rows_of_all_sizes(seed)
    codes, scales = quantise(rows, storage, scale)
    back = dequantise(codes, scales, storage, scale)
    error = (back.double() - rows.double()).abs()
    bound = error_bound(rows, storage, checked_scale(scale))
    assert (error <= bound).all()
    if name == "fp32":
        assert not error.any()
    else:
        assert (error / bound).max() > 0.9


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("bf16", 1.0, 2.0**-8),  # half a step of 8 significant bits
        ("fp16", 1.0, 2.0**-11),
        ("mxfp8", 1.0, 2.0**-4),  # half a step of 4 significant bits, under 2^-8
        ("mxfp8", 1.96875, 1.96875 - 1.75),  # clamped from 504 to 448, under 2^-8
    ],
)
def test_the_bound_by_hand(name, value, bound):
    """Half a step, or what clamping takes away."""
    storage = storage_format(name)
    rows = row_of([value], storage.block or 1)
    assert error_bound(rows, storage)[0, 0] == bound


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2.0**101, "1"])
def test_a_scale_that_is_none_is_refused(scale):
    """A tensor's scale is a number above zero whose inverse is one too."""
    with pytest.raises(KernelError, match="scale"):
        checked_scale(scale)


def test_the_models_know_every_format_that_is_narrowed_to():
    """No format of values but fp32 goes without a definition to compare with."""
    assert {one.values.name for one in STORAGE_FORMATS.values()} - set(MODELS) == {"fp32"}
