"""Layouts, tokens and slots for the tests of `store_kv` and `load_kv`."""

import numpy as np
import torch

from kvlife.kernels.numerics import STORAGE_FORMATS
from kvlife.pools.layouts import Latent, MultiHead

NUM_LAYERS = 3
# Heads of two widths, one head, a row of more columns than a tile has, and a latent row.
SHAPES = {
    "grouped": {"num_kv_heads": 3, "k_dim": 96, "v_dim": 64},
    "single": {"num_kv_heads": 1, "k_dim": 32, "v_dim": 32},
    "wide": {"num_kv_heads": 9, "k_dim": 128, "v_dim": 32},
    "latent": {"latent_dim": 160, "rope_dim": 32},
}
LAYOUTS = [f"{shape} by {order}" for shape in SHAPES for order in ("layer", "page")]
# Each pair of these in every run, each combination in a soak.
AXES = {
    "layout": LAYOUTS,
    "dtype": list(STORAGE_FORMATS),
    "page_size": [1, 16, 64, 256],
    "batch": [0, 1, 3, 1000],
    "lengths": ["a page", "many pages"],
}
COMPUTE = [torch.bfloat16, torch.float16, torch.float32]
# Of these a case has one each, by its seed.
DRAWN = {
    "compute": COMPUTE,
    "loaded": COMPUTE,
    "stride": ["whole", "heads apart", "values apart"],
    "slots": [torch.int32, torch.int64],
}


def drawn_by(rng):
    """One value of each of `DRAWN`."""
    return {name: values[rng.integers(len(values))] for name, values in DRAWN.items()}


def layout_of(name, dtype):
    """A layout of three layers; where the dtype takes a scale, one for each layer."""
    shape, order = name.split(" by ")
    scales = (0.375, 1.0, 3.7) if STORAGE_FORMATS[dtype].tensor_scale else 1.0
    shared = {"num_layers": NUM_LAYERS, "dtype": dtype, "order": order}
    if shape == "latent":
        return Latent(**SHAPES[shape], **shared, scale=scales)
    return MultiHead(**SHAPES[shape], **shared, k_scale=scales, v_scale=scales)


def slots_of(rng, case, target, dtype):
    """Slots in no order, each once; where there is room, slot 0 of the reserved page among them."""
    slots = rng.permutation(target.num_slots)[: case["batch"]]
    if len(slots) > 1 and 0 not in slots:
        slots[rng.integers(len(slots))] = 0
    return torch.from_numpy(slots).to(dtype)


def pages_for(case):
    """Pages for the batch's tokens and some more: about one page of them, or many."""
    spare = 1 if case["lengths"] == "a page" else 40
    return 1 + -(-case["batch"] // case["page_size"]) + spare


def values_of(rng, shape, dtype, stride):
    """Values of all magnitudes with zeros, infinities, NaN and subnormals among them."""
    values = rng.standard_normal(shape) * np.exp2(
        rng.normal(0, 5, (shape[0],) + (1,) * (len(shape) - 1))
    )
    odd = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-38, 6e-5, 3e38], shape)
    values = torch.from_numpy(np.where(rng.random(shape) < 0.01, odd, values)).to(dtype)
    if stride == "whole":
        return values
    wide = torch.full((*shape[:-1], 2 * shape[-1]), -7.0, dtype=dtype)
    apart = wide[..., : shape[-1]] if stride == "heads apart" else wide[..., ::2]
    apart.copy_(values)
    return apart
