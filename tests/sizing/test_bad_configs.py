"""Configs and geometries that cannot be: the error names the key, what is there and what to do."""

import pytest
from model_configs import (
    DEEPSEEK_V4,
    DEEPSEEK_V32,
    GEMMA_3_27B_AS_RELEASED,
    GPT_OSS_120B,
    JAMBA_01,
    KIMI_LINEAR_48B,
    LLAMA_31_8B,
    MINIMAX_M3,
    QWEN3_NEXT_80B,
)

from kvlife.errors import ConfigError
from kvlife.sizing import (
    FullAttention,
    Heads,
    Latent,
    ModelGeometry,
    Parallel,
    RecurrentState,
    SharedWindow,
    SlidingWindow,
    configure_kv_cache_dtype,
    group_bytes,
)


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        ({}, ["num_hidden_layers", "torch_dtype", "max_position_embeddings"]),
        ({"num_hidden_layers": 2}, ["num_attention_heads", "kv_lora_rank", "mamba_d_state"]),
        (without(LLAMA_31_8B, "hidden_size"), ["head_dim", "hidden_size"]),
        (
            without(LLAMA_31_8B, "torch_dtype", "hidden_size", "max_position_embeddings"),
            ["torch_dtype (or dtype)", "head_dim", "max_position_embeddings"],
        ),
        (without(GPT_OSS_120B, "sliding_window", "head_dim"), ["sliding_window", "head_dim"]),
        (without(DEEPSEEK_V32, "qk_rope_head_dim"), ["qk_rope_head_dim"]),
        (
            {**without(DEEPSEEK_V32, "index_head_dim"), "layer_types": ["indexed_attention"] * 61},
            ["index_head_dim"],
        ),
        (
            without(QWEN3_NEXT_80B, "linear_key_head_dim", "linear_conv_kernel_dim"),
            ["linear_key_head_dim", "linear_conv_kernel_dim"],
        ),
        (without(JAMBA_01, "mamba_d_conv", "mamba_expand"), ["mamba_d_conv", "mamba_expand"]),
        (without(JAMBA_01, "attn_layer_offset"), ["attn_layer_offset"]),
        (without(DEEPSEEK_V4, "index_head_dim"), ["index_head_dim"]),
        (
            {
                **without(DEEPSEEK_V4, "compress_ratios"),
                "layer_types": ["heavily_compressed_attention"] * 43,
            },
            ["compress_rates"],
        ),
        # Which layers have the window is not said, and neither is which are recurrent.
        ({**LLAMA_31_8B, "sliding_window": 4096}, ["layer_types", "sliding_window_pattern"]),
        (
            GEMMA_3_27B_AS_RELEASED,
            ["max_position_embeddings", "layer_types", "sliding_window_pattern"],
        ),
        ({**LLAMA_31_8B, "attention_chunk_size": 4096}, ["layer_types", "no_rope_layers"]),
        ({**LLAMA_31_8B, "mamba_d_state": 16}, ["layer_types", "hybrid"]),
        ({**LLAMA_31_8B, "layer_types": ["mamba"] * 32}, ["recurrent layer"]),
    ],
)
def test_what_a_config_lacks_is_named(config, keys):
    """One error names every key that is missing, and says that layers can be given by hand."""
    with pytest.raises(ConfigError) as refused:
        ModelGeometry.from_config(config)
    message = str(refused.value)
    assert message.startswith("the config lacks ")
    assert "ModelGeometry(layers=[...]" in message
    assert [key for key in keys if key not in message] == []


@pytest.mark.parametrize("value", [0, -8, 8.0, "8", True, [8, 8]])
def test_sizes_are_positive_whole_numbers(value):
    """The error names the key, its value and what it must be."""
    with pytest.raises(ConfigError, match=r"num_(key_value_heads|hidden_layers)"):
        ModelGeometry.from_config({**LLAMA_31_8B, "num_key_value_heads": value})
    with pytest.raises(ConfigError, match="num_hidden_layers is"):
        ModelGeometry.from_config({**LLAMA_31_8B, "num_hidden_layers": value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_types": ["full_attention"] * 31}, "layer_types has 31 names.*32 layers"),
        ({"layer_types": ["full_attention"] * 31 + ["ring"]}, "'ring'.*known are.*full_attention"),
        ({"layer_types": "full_attention"}, "layer_types.*list"),
        ({"layer_types": [0] * 32}, "layer_types holds 0"),
        ({"hidden_size": 4100}, "32 heads do not divide the hidden size 4100"),
        ({"torch_dtype": 16}, "torch_dtype is 16"),
        ({"torch_dtype": "wide"}, "width of dtype 'wide'"),
        ({"use_sliding_window": "no", "sliding_window": 8}, "use_sliding_window.*true or false"),
        ({"num_kv_shared_layers": 32}, "num_kv_shared_layers is 32"),
        ({"attn_layer_indices": [3, 32], "mamba_d_state": 8}, "names layer 32"),
        ({"attn_layer_period": 4, "attn_layer_offset": 4}, "offset 4 is not below the period 4"),
        ({"hybrid_override_pattern": "M*Z-" * 8}, "hybrid_override_pattern.*letters"),
        ({"hybrid_override_pattern": "M*-"}, "has 3 letters.*32 layers"),
        ({"attn_type_list": [0, 1]}, "attn_type_list has 2 values.*32 layers"),
        ({"attn_type_list": [0, 7] * 16}, r"attn_type_list has \[7\]"),
        ({"sparse_attention_config": [1]}, "sparse_attention_config"),
    ],
)
def test_values_that_cannot_be_are_refused(change, message):
    """Lists of a wrong length, unknown names, dims that do not divide: each with its key."""
    with pytest.raises(ConfigError, match=message):
        ModelGeometry.from_config({**LLAMA_31_8B, **change})


def test_lists_that_name_a_layer_twice_or_not_at_all_are_refused():
    """Two lists must share out the layers between them."""
    linear = KIMI_LINEAR_48B["linear_attn_config"]
    for full in ([4, 8, 12, 16, 20, 24], [1, *linear["full_attn_layers"]], [30]):
        config = {**KIMI_LINEAR_48B, "linear_attn_config": {**linear, "full_attn_layers": full}}
        with pytest.raises(ConfigError, match="each of the 27 layers once"):
            ModelGeometry.from_config(config)


def test_ratios_without_a_known_meaning_are_refused():
    """Which ratio has index keys is known of 4 and 128; others need names."""
    with pytest.raises(ConfigError, match=r"compress_ratios has \[2\].*add layer_types"):
        ModelGeometry.from_config({**DEEPSEEK_V4, "compress_ratios": [2] * 43})
    config = {**without(DEEPSEEK_V4, "qk_rope_head_dim"), "partial_rotary_factor": 2}
    with pytest.raises(ConfigError, match="partial_rotary_factor is 2"):
        ModelGeometry.from_config(config)


def test_index_values_are_not_guessed():
    """Sparse layers that keep index values too are refused, rather than counted without."""
    text = MINIMAX_M3["text_config"]
    sparse = {**text["sparse_attention_config"], "sparse_disable_index_value": [0] * 60}
    with pytest.raises(ConfigError, match="sparse_disable_index_value is 0"):
        ModelGeometry.from_config(
            {**text, "sparse_attention_config": sparse, "torch_dtype": "bfloat16"}
        )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_configs", [{"attention": {"n_heads_in_group": 8}}] * 32),
        ("cross_attention_layers", [3, 8]),
        ("is_encoder_decoder", True),
    ],
)
def test_what_is_not_read_is_refused(key, value):
    """Keys that change what layers keep, in a way that is not known, are not passed over."""
    with pytest.raises(ConfigError, match=f"{key} .*is not read.*ModelGeometry"):
        ModelGeometry.from_config({**LLAMA_31_8B, key: value})
    for nothing in (None, False, []):
        assert ModelGeometry.from_config({**LLAMA_31_8B, key: nothing}).num_layers == 32


@pytest.mark.parametrize(
    "change",
    [
        {"num_key_value_heads": "8" * 10**6},
        {"num_key_value_heads": {"each": [8] * 10**4}},
        {"num_hidden_layers": 10**4_000},
        {"torch_dtype": "x" * 10**6},
        {"torch_dtype": ["bfloat16"] * 10**4},
        {"layer_types": ["x" * 10**6] * 32},
        {"layer_types": "x" * 10**6},
        {"hybrid_override_pattern": "x" * 10**6},
        {"attn_type_list": [*range(2, 34)]},
        {"linear_attn_config": "x" * 10**6},
        {"use_cla": "x" * 10**6},
    ],
)
def test_a_long_value_is_not_repeated_whole(change):
    """A message stays one that can be read: of what is long it has the two ends."""
    with pytest.raises(ConfigError) as refused:
        ModelGeometry.from_config({**LLAMA_31_8B, **change})
    assert len(str(refused.value)) < 800


def test_hostile_sizes_are_refused_at_once():
    """Numbers that no model has, and configs that hold themselves, end in an error or an answer."""
    for change in ({"num_hidden_layers": 10**12}, {"n_layer": 10**30, "num_hidden_layers": None}):
        with pytest.raises(ConfigError, match="at most 4096"):
            ModelGeometry.from_config({**LLAMA_31_8B, **change})
    endless = {"torch_dtype": "bfloat16"}
    endless["text_config"] = endless
    with pytest.raises(ConfigError, match="lacks"):
        ModelGeometry.from_config(endless)
    geometry = ModelGeometry.from_config({**LLAMA_31_8B, "num_key_value_heads": 10**12 + 39})
    dtype = configure_kv_cache_dtype("auto", geometry.model_dtype)
    with pytest.raises(ConfigError, match="cannot be split evenly over 7"):
        group_bytes(geometry, dtype, Parallel(tp=7))


@pytest.mark.parametrize("config", [None, [], "llama", 7])
def test_what_is_no_config_is_refused(config):
    """A config holds keys and values."""
    with pytest.raises(ConfigError, match="keys and values"):
        ModelGeometry.from_config(config)


def test_a_window_larger_than_the_context_is_refused():
    """gpt-oss with a context of 100 tokens: its window of 128 is none; 128 and above work."""
    with pytest.raises(ConfigError, match=r"window of 128 tokens.*context is 100.*128 or more"):
        ModelGeometry.from_config(GPT_OSS_120B, context_len=100)
    assert ModelGeometry.from_config(GPT_OSS_120B, context_len=128).context_len == 128
    shared = SharedWindow(dim=512, rope_dim=64, window=128)
    with pytest.raises(ConfigError, match="layer 1 has a window of 128"):
        ModelGeometry(layers=[(), shared], context_len=127)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FullAttention(num_kv_heads=0, k_dim=1, v_dim=1), "num_kv_heads of FullAttention"),
        (lambda: FullAttention(num_kv_heads=1, k_dim=-1, v_dim=1), "k_dim of FullAttention"),
        (lambda: Latent(kv_lora_rank=512, rope_dim=-1), "rope_dim of Latent.*at least 0"),
        (lambda: Heads(num=True, dim=1), "num of Heads"),
        (
            lambda: SlidingWindow(num_kv_heads=1, k_dim=1, v_dim=1, window=0),
            "window of SlidingWindow",
        ),
        (RecurrentState, "a state, or a convolution"),
        (lambda: ModelGeometry(layers=[], context_len=8), "no layer keeps a cache"),
        (lambda: ModelGeometry(layers=[()], context_len=8), "no layer keeps a cache"),
        (lambda: ModelGeometry(layers=[["full"]], context_len=8), "'full', which is no kind"),
        (
            lambda: ModelGeometry(layers=[Latent(kv_lora_rank=1, rope_dim=0)], context_len=0),
            "context_len",
        ),
    ],
)
def test_geometries_by_hand_are_checked(make, message):
    """Each size of each kind of cache, the layers and the context."""
    with pytest.raises(ConfigError, match=message):
        make()
