"""What has no bytes: heads that do not divide, dtypes without a form, ratios that cannot be."""

import pytest
from model_configs import (
    DEEPSEEK_V4,
    DEEPSEEK_V32,
    LLAMA_31_8B,
    MINIMAX_M3,
)
from sized import ONE_RANK, a_token, groups_of

from kvlife.errors import ConfigError
from kvlife.sizing import (
    FullAttention,
    ModelGeometry,
    Parallel,
    configure_kv_cache_dtype,
    group_bytes,
)


@pytest.mark.parametrize("tp", [3, 6, 12])
def test_a_tensor_parallel_size_that_divides_no_head_count_is_refused(tp):
    """8 KV heads go into 1, 2, 4 and 8 parts, or several times 8; the error says so."""
    with pytest.raises(ConfigError, match=rf"8 KV heads .* {tp} .*1, 2, 4, 8, and .*of 8"):
        a_token(LLAMA_31_8B, parallel=Parallel(tp=tp))


def test_dtypes_that_a_layout_has_no_form_for_are_refused():
    """Indexed latents and shared vectors are kept in fp8_e4m3 or wider."""
    for config in (DEEPSEEK_V32, DEEPSEEK_V4):
        for dtype in ("nvfp4", "mxfp8", "fp8_e5m2"):
            with pytest.raises(ConfigError, match=f"fp8_e4m3.*not in {dtype}"):
                groups_of(config, dtype)


def test_dims_without_whole_blocks_are_refused():
    """Blocks of scales must not cross heads; the error names a dtype that works."""
    geometry = ModelGeometry(
        layers=[FullAttention(num_kv_heads=8, k_dim=80, v_dim=80)], context_len=64
    )
    dtype = configure_kv_cache_dtype("mxfp8", "bfloat16")
    with pytest.raises(ConfigError, match=r"blocks of 32 .*80 a head.*fp8_e4m3"):
        group_bytes(geometry, dtype, ONE_RANK)


@pytest.mark.parametrize("config", [LLAMA_31_8B, MINIMAX_M3])
def test_a_host_ratio_needs_index_keys_everywhere(config):
    """Without index keys the device cannot know what to fetch from the host."""
    with pytest.raises(ConfigError, match="without index keys"):
        groups_of(config, host_to_device_ratio=2)


@pytest.mark.parametrize("ratio", [0, -1, 1.5])
def test_a_host_ratio_is_a_whole_number(ratio):
    """A ratio below 1, or a fraction, is refused."""
    with pytest.raises(ConfigError, match="host_to_device_ratio"):
        groups_of(DEEPSEEK_V32, host_to_device_ratio=ratio)
