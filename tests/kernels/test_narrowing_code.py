"""What the compiler makes of narrowing: no casts, nothing fused, nothing flushed to zero."""

import re

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from kvlife.kernels import compiling

NAMES = ("bf16 to fp8_e4m3, 8 x 128", "bf16 to nvfp4, 8 x 128", "fp32 to bf16, 8 x 128")


def specimens():
    found = {one.name: one for one in compiling.specimens_of("store_kv")}
    return [found[name] for name in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_the_ptx_has_the_operations_that_the_reference_has(name):
    """A cast would round its own way, a fused multiply-add once too few, and ftz loses values."""
    (specimen,) = (one for one in specimens() if one.name == name)
    ptx = compiling._built(specimen, "sm_80").asm["ptx"]
    arithmetic = set(re.findall(r"\b(?:add|mul|div|fma|mad|cvt|min|max|sub)\.[\w.]*f\d+", ptx))
    # fp16 to fp32 is exact: it is how the scale of a block is read back.
    assert arithmetic <= {"add.rn.f32", "mul.rn.f32", "div.rn.f32", "min.f32", "cvt.f32.f16"}
    assert ".ftz" not in ptx
