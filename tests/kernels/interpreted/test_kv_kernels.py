"""`store_kv` and `load_kv` in Triton against torch: every byte of the arena, every bit loaded."""

import numpy as np
import pytest
import torch
from kv_cases import AXES, COMPUTE, drawn_by, layout_of, pages_for, slots_of, values_of
from twice import POISON, assert_same

from kvlife.kernels import kv_launch
from kvlife.kernels.load_kv import load_kv
from kvlife.kernels.load_kv.kernel import load_kv_triton
from kvlife.kernels.numerics import STORAGE_FORMATS
from kvlife.kernels.store_kv import store_kv
from kvlife.kernels.store_kv.kernel import store_kv_triton
from kvlife.kernels.violations import ViolationCode, Violations

# numpy warns where values become infinite, and of NaN; both are clamped or replaced afterwards.
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow):RuntimeWarning")


def arena_of(layout, page_size, num_pages):
    """A poisoned arena, so that a byte that should not be written shows."""
    num_bytes = layout.num_bytes(page_size, num_pages)
    return torch.full((num_bytes,), POISON, dtype=torch.uint8)


@pytest.mark.axes(**AXES)
def test_store_and_load_equal_their_references(case, seed, monkeypatch):
    """What is stored, what is loaded and what is left alone are the same from both."""
    if case["layout"].startswith("wide"):
        # The interpreter takes one program after the other: fewer and larger ones than on a GPU.
        monkeypatch.setattr(kv_launch, "TILE_VALUES", 1 << 16)
    rng = np.random.default_rng(seed)
    drawn = drawn_by(rng)
    layout = layout_of(case["layout"], case["dtype"])
    num_pages = pages_for(case)
    target = layout.target(case["page_size"], num_pages)
    arena = arena_of(layout, case["page_size"], num_pages)
    slots = slots_of(rng, case, target, drawn["slots"])
    k, v = (
        values_of(rng, (case["batch"], *part.shape), drawn["compute"], drawn["stride"])
        for part in target.parts
    )
    layer = int(rng.integers(layout.num_layers))
    _, (arguments, _) = assert_same(store_kv, arena, target, layer, k, v, slots)
    assert_same(load_kv, arguments[0], target, layer, slots, drawn["loaded"])


@pytest.mark.parametrize("dtype", list(STORAGE_FORMATS))
@pytest.mark.parametrize("compute", COMPUTE, ids=str)
def test_every_dtype_is_stored_from_and_loaded_to_every_other(dtype, compute, seed):
    """No pair of a stored and a compute dtype is left to chance."""
    rng = np.random.default_rng(seed)
    layout = layout_of("grouped by layer", dtype)
    target = layout.target(4, 6)
    arena = arena_of(layout, 4, 6)
    k, v = (values_of(rng, (20, *part.shape), compute, "whole") for part in target.parts)
    slots = torch.from_numpy(rng.permutation(24)[:20])
    _, (arguments, _) = assert_same(store_kv, arena, target, 1, k, v, slots)
    for loaded in COMPUTE:
        assert_same(load_kv, arguments[0], target, 1, slots, loaded)


@pytest.mark.parametrize("dtype", ["bf16", "nvfp4"])
def test_tokens_outside_the_pool_are_left_out_and_reported(dtype):
    """As on a GPU, where looking at slots would wait: no byte, zeros, and one finding a token."""
    layout = layout_of("grouped by layer", dtype)
    target = layout.target(4, 5)
    arena = arena_of(layout, 4, 5)
    k, v = (torch.ones(5, *part.shape, dtype=torch.bfloat16) for part in target.parts)
    slots = torch.tensor([3, -1, 20, 2**40, 7])
    found = Violations.create("cpu", 8)
    store_kv_triton(arena, target, 1, (k, v), slots, found, seq=9, group=2)
    wanted = arena_of(layout, 4, 5)
    inside = torch.tensor([0, 4])
    store_kv_triton(wanted, target, 1, (k[inside], v[inside]), slots[inside], None, seq=9, group=2)
    assert torch.equal(arena, wanted)
    findings = found.read()
    assert [one.where for one in findings] == [-1, 20, 2**40]
    assert {(one.code, one.page, one.seq, one.group) for one in findings} == {
        (ViolationCode.OUTSIDE, -1, 9, 2)
    }
    found.clear()
    loaded, _ = load_kv_triton(arena, target, 1, slots, torch.bfloat16, found, seq=9, group=2)
    assert found.count.tolist() == [3]
    assert not loaded[1:4].any()
    assert loaded[inside].all()
