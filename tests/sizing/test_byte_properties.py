"""What holds of bytes for every geometry, dtype and parallelism."""

import itertools

import attrs
from geometries import any_dtype_caches, fp8_caches, geometries, parallels
from hypothesis import given
from hypothesis import strategies as st

from kvlife.sizing import Parallel, configure_kv_cache_dtype, group_bytes

WIDTHS = ["nvfp4", "fp8_e4m3", "mxfp8", "bf16", "fp32"]
FP8_WIDTHS = ["fp8_e4m3", "bf16", "fp32"]


def bytes_of(geometry, dtype="bf16", parallel=None, **options):
    kv_dtype = configure_kv_cache_dtype(dtype, geometry.model_dtype)
    groups = group_bytes(geometry, kv_dtype, parallel or Parallel(), **options)
    return {group.name: group.bytes_per_token or group.bytes_per_slot for group in groups}


@given(geometry=geometries(any_dtype_caches), parallel=parallels())
def test_a_smaller_dtype_never_takes_more(geometry, parallel):
    """From nvfp4 over fp8, mxfp8 and bf16 to fp32, no group shrinks."""
    sizes = [bytes_of(geometry, dtype, parallel) for dtype in WIDTHS]
    for smaller, larger in itertools.pairwise(sizes):
        assert all(smaller[name] <= larger[name] for name in larger)


@given(geometry=geometries(fp8_caches), parallel=parallels())
def test_fp8_with_its_scales_never_takes_more_than_bf16(geometry, parallel):
    """Also where the fp8 form keeps rotary values wider and scales between them."""
    sizes = [bytes_of(geometry, dtype, parallel) for dtype in FP8_WIDTHS]
    for smaller, larger in itertools.pairwise(sizes):
        assert all(smaller[name] <= larger[name] for name in larger)


@given(geometry=geometries(fp8_caches), parallel=parallels())
def test_ranks_together_hold_at_least_what_one_holds(geometry, parallel):
    """TP times the bytes of a rank is no less than one rank alone has, and a rank's no more."""
    whole = bytes_of(geometry, parallel=attrs.evolve(parallel, tp=1, attention_dp=1, dcp=1))
    part = bytes_of(geometry, parallel=parallel)
    assert all(part[name] <= whole[name] <= part[name] * parallel.tp for name in whole)


@given(geometry=geometries(fp8_caches), parallel=parallels())
def test_stages_together_hold_exactly_the_model(geometry, parallel):
    """Summed over the pipeline's stages, each group has the bytes of one that holds all layers."""
    whole = bytes_of(geometry, parallel=attrs.evolve(parallel, pp=1, pp_rank=0))
    stages = [
        bytes_of(geometry, parallel=attrs.evolve(parallel, pp_rank=rank))
        for rank in range(parallel.pp)
    ]
    assert {name: sum(stage[name] for stage in stages) for name in whole} == whole


@given(geometry=geometries(fp8_caches), parallel=parallels())
def test_each_figure_is_the_sum_of_its_parts(geometry, parallel):
    """The bytes of an entry are those of its parts over the layers, and the derivation's value."""
    dtype = configure_kv_cache_dtype("fp8_e4m3", geometry.model_dtype)
    for group in group_bytes(geometry, dtype, parallel):
        parts = sum(cell.num_layers * part.num_bytes for cell in group.cells for part in cell.parts)
        assert group.entry_bytes == parts
        assert group.derivation.value == group.bytes_per_token + group.bytes_per_slot


@given(geometry=geometries(fp8_caches), parallel=parallels(), seed=st.randoms())
def test_the_order_of_layers_changes_nothing_without_stages(geometry, parallel, seed):
    """A group's bytes are a sum over its layers."""
    parallel = attrs.evolve(parallel, pp=1, pp_rank=0)
    layers = list(geometry.layers)
    seed.shuffle(layers)
    shuffled = attrs.evolve(geometry, layers=layers)
    assert bytes_of(shuffled, parallel=parallel) == bytes_of(geometry, parallel=parallel)
