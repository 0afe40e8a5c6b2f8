"""The pools that a plan makes take the bytes that it planned; others are refused by name."""

import hypothesis.strategies as st
import model_configs as models
import pytest
from hypothesis import given, settings
from plans import DEVICE, GIB, configurator, planned

from kvlife import KvEngine
from kvlife.config import compile_layout
from kvlife.errors import ConfigError
from kvlife.pools.device_state import state_bytes
from kvlife.sizing import (
    HIP,
    Draft,
    FullAttention,
    KVCacheConfigurator,
    Latent,
    ModelGeometry,
    Parallel,
    SlidingWindow,
    build_pools,
    configure_kv_cache_dtype,
    plan_pipeline,
)

DTYPES = ("bf16", "fp16", "fp32", "fp8_e4m3", "fp8_e5m2", "mxfp8", "nvfp4")


def built_bytes(plan, **options):
    """The bytes that the plan's pools take once an engine has them."""
    pools = build_pools(plan, **options)
    with KvEngine(plan.pool_config, pools=pools):
        return sum(pools.buffers(part.name).num_bytes for part in plan.pools)


@pytest.mark.parametrize("order", ["layer", "page"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_full_and_window_pools(dtype, order):
    """Heads of unequal K and V, in every dtype and both orders."""
    layers = [
        FullAttention(num_kv_heads=3, k_dim=96, v_dim=64),
        FullAttention(num_kv_heads=3, k_dim=96, v_dim=64),
        SlidingWindow(num_kv_heads=1, k_dim=32, v_dim=160, window=64),
    ]
    plan = planned(ModelGeometry(layers=layers, context_len=256), 1 << 20, dtype)
    assert built_bytes(plan, order=order) == plan.planned_bytes <= 1 << 20


@pytest.mark.parametrize("order", ["layer", "page"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_latent_pools(dtype, order):
    """The latent and its rotary part lie in one plane, and so do their scales."""
    layers = [Latent(kv_lora_rank=96, rope_dim=32)] * 3
    geometry = ModelGeometry(layers=layers, context_len=256)
    plan = planned(geometry, 1 << 20, dtype, page_size=1)
    assert built_bytes(plan, order=order) == plan.planned_bytes <= 1 << 20


@settings(max_examples=60)
@given(
    num_layers=st.integers(1, 5),
    heads=st.integers(1, 3),
    dims=st.tuples(st.sampled_from([32, 64, 96]), st.sampled_from([32, 64, 96])),
    dtype=st.sampled_from(DTYPES),
    page_size=st.sampled_from([1, 2, 3, 16]),
    available=st.integers(1 << 18, 1 << 20),
)
def test_bytes_of_odd_sizes(num_layers, heads, dims, dtype, page_size, available):
    """What is left free between planes is counted to the byte."""
    layer = FullAttention(num_kv_heads=heads, k_dim=dims[0], v_dim=dims[1])
    geometry = ModelGeometry(layers=[layer] * num_layers, context_len=64)
    plan = planned(geometry, available, dtype, page_size=page_size)
    assert built_bytes(plan) == plan.planned_bytes <= available


def test_a_real_model():
    """All layers of gpt-oss in 64 MiB: two pools, each of its own pages."""
    config = {**models.GPT_OSS_120B, "max_position_embeddings": 4096}
    plan = planned(config, 64 << 20, max_running_requests=4)
    assert built_bytes(plan) == plan.planned_bytes


def test_tables_are_those_of_the_device():
    """The tables that are listed beside the pools take what the device state takes."""
    plan = planned(models.GPT_OSS_120B, GIB, max_running_requests=100)
    listed = sum(table.num_bytes for table in plan.tables)
    assert listed == state_bytes(compile_layout(plan.pool_config))


def test_a_plan_without_a_pool_has_tables_alone():
    """Prefill only: the engine runs, and no KV buffer is made."""
    layer = FullAttention(num_kv_heads=1, k_dim=32, v_dim=32)
    geometry = ModelGeometry(layers=[layer], context_len=64)
    plan = planned(geometry, 1 << 16, prefill_only=True)
    pools = build_pools(plan)
    with KvEngine(plan.pool_config, pools=pools) as engine:
        engine.admit("r1", list(range(32)))
        assert engine.allocate(["r1"], [32]).shape == (32,)
        with pytest.raises(ConfigError):
            pools.buffers()


def test_an_engine_runs_on_built_pools():
    """A request's tokens get slots of the pool that was planned."""
    layer = FullAttention(num_kv_heads=1, k_dim=32, v_dim=32)
    plan = planned(ModelGeometry(layers=[layer], context_len=64), 1 << 16)
    with KvEngine(plan.pool_config, pools=build_pools(plan)) as engine:
        engine.admit("r1", list(range(32)))
        slots = engine.allocate(["r1"], [32])
        assert int(slots.max()) < plan.pools[0].num_pages * plan.page_size


@pytest.mark.parametrize(
    ("config", "options", "named"),
    [
        (models.QWEN3_NEXT_80B, {}, "the state slots of group 'state'"),
        (models.DEEPSEEK_V32, {}, "'latent indexed' of group 'full'"),
        (models.DEEPSEEK_V32, {"host_to_device_ratio": 2}, "HiSparse"),
        (models.MINIMAX_M3, {}, "'sparse indexed'"),
        (
            models.DEEPSEEK_V4,
            {"page_size": 128, "max_running_requests": 8},
            "states of compressors",
        ),
        (models.GPT_OSS_120B, {"unified": True}, "one buffer for several groups"),
    ],
)
def test_a_layout_that_does_not_exist_yet(config, options, named):
    """It is named, and nothing is made."""
    plan = planned(config, 8 * GIB, **options)
    with pytest.raises(ConfigError, match="no layout exists yet for") as refused:
        build_pools(plan)
    assert named in str(refused.value)


def test_layers_of_several_shapes_in_one_pool():
    """A layout has layers that are alike."""
    layers = [FullAttention(num_kv_heads=heads, k_dim=64, v_dim=64) for heads in (1, 2)]
    plan = planned(ModelGeometry(layers=layers, context_len=64), 1 << 20)
    with pytest.raises(ConfigError, match="'full attention', 'full attention 2' in one pool"):
        build_pools(plan)


def test_a_draft_at_the_target_size_is_a_layer_more():
    """EAGLE's layer lies beside the model's own."""
    layer = FullAttention(num_kv_heads=1, k_dim=32, v_dim=32)
    geometry = ModelGeometry(layers=[layer] * 2, context_len=64)
    plan = planned(geometry, 1 << 16, draft=Draft(algorithm="EAGLE", num_layers=1))
    assert plan.buffers[0].shape[0] == 3
    assert built_bytes(plan) == plan.planned_bytes


def test_the_fp8_of_hip_is_refused():
    """Its bytes are as many, and stand for other numbers."""
    layer = FullAttention(num_kv_heads=1, k_dim=32, v_dim=32)
    geometry = ModelGeometry(layers=[layer], context_len=64)
    asked = KVCacheConfigurator(
        geometry=geometry,
        dtype=configure_kv_cache_dtype("fp8_e4m3", "bfloat16", platform=HIP),
        free_bytes=GIB,
        mem_fraction=0.5,
    )
    with pytest.raises(ConfigError, match="float8_e4m3fnuz, HIP's own fp8"):
        build_pools(asked.configure(GIB))


def test_a_stage_without_layers_of_a_pool():
    """The pool has tables on that rank, and no layer to lay out."""
    layers = [
        FullAttention(num_kv_heads=1, k_dim=32, v_dim=32),
        SlidingWindow(num_kv_heads=1, k_dim=32, v_dim=32, window=32),
    ]
    geometry = ModelGeometry(layers=layers, context_len=64)
    asked = configurator(geometry, 1 << 20, parallel=Parallel(pp=2))
    first, _ = plan_pipeline(asked, DEVICE)
    with pytest.raises(ConfigError, match="no layer of this rank in one pool, that of 'swa'"):
        build_pools(first)
