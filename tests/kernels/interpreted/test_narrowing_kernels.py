"""Narrowing, widening and scales in Triton against torch's, bit for bit, exhaustively."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from kvlife.kernels.numerics import BF16, E2M1, E4M3, E5M2, FP16, FP32, narrow, widen
from kvlife.kernels.numerics import kernel as in_triton

# numpy warns of signalling NaN in sums that are not used.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")

FORMATS = {one.name: one for one in (FP32, FP16, BF16, E4M3, E5M2, E2M1)}
BLOCK = 1 << 16


@triton.jit
def narrow_all(values, codes, form: tl.constexpr, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(codes + at, in_triton.narrow(tl.load(values + at), form))


@triton.jit
def widen_all(codes, values, form: tl.constexpr, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(values + at, in_triton.widen(tl.load(codes + at), form))


def inputs(kind, seed):
    """All values of a compute dtype, or fp32 values of random bits."""
    if kind == "random fp32":
        bits = np.random.default_rng(seed).integers(0, 1 << 32, 4 * BLOCK, dtype=np.uint64)
        return torch.from_numpy(bits.astype(np.uint32).view(np.float32))
    codes = torch.arange(BLOCK, dtype=torch.int32)
    return widen(codes, FORMATS[kind])


@pytest.mark.parametrize("kind", ["bf16", "fp16", "random fp32"])
@pytest.mark.parametrize("name", FORMATS)
def test_triton_narrows_as_torch_does(name, kind, seed):
    """Every bf16 and fp16 value, and random fp32 bits, have the same code from both."""
    values = inputs(kind, seed)
    codes = torch.full((len(values),), 0x5A5A5A5A, dtype=torch.int32)
    narrow_all[(len(values) // BLOCK,)](values, codes, FORMATS[name], BLOCK)
    assert torch.equal(codes, narrow(values, FORMATS[name]))


@pytest.mark.parametrize("name", FORMATS)
def test_triton_widens_as_torch_does(name, seed):
    """Every code of up to 16 bits, and random ones of 32, have the same value from both."""
    if name == "fp32":
        codes = inputs("random fp32", seed).view(torch.int32)
    else:
        codes = torch.arange(BLOCK, dtype=torch.int32) & ((1 << FORMATS[name].bits) - 1)
    values = torch.full((len(codes),), 7.0)
    widen_all[(len(codes) // BLOCK,)](codes, values, FORMATS[name], BLOCK)
    wanted = widen(codes, FORMATS[name])
    assert torch.equal(values.view(torch.int32), wanted.view(torch.int32))
