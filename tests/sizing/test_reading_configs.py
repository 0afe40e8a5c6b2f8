"""Reading configs: each way of saying which layer is what, as real configs use it."""

from collections import Counter

import pytest
from model_configs import (
    BAMBA_9B,
    DEEPSEEK_V3,
    DEEPSEEK_V4,
    DEEPSEEK_V32,
    FALCON_H1_05B,
    GEMMA_3_27B,
    GPT_OSS_120B,
    JAMBA_01,
    KIMI_LINEAR_48B,
    LFM2_1B,
    LLAMA_4_MAVERICK,
    LLAMA_31_8B,
    MAMBA_2_1B,
    MIMO_V2_FLASH,
    MINIMAX_M1,
    MINIMAX_M3,
    NEMOTRON_NANO_9B,
    QWEN3_NEXT_80B,
    RECURRENT_GEMMA_2B,
)

from kvlife.errors import ConfigError
from kvlife.sizing import (
    Compressed,
    CompressorState,
    FullAttention,
    Heads,
    Latent,
    LatentIndexed,
    ModelGeometry,
    RecurrentState,
    SharedWindow,
    SlidingWindow,
    SparseIndexed,
)

FULL = FullAttention(num_kv_heads=8, k_dim=128, v_dim=128)


def layers_of(config, **given):
    return ModelGeometry.from_config(config, **given).layers


def counted(config, **given):
    return dict(Counter(layers_of(config, **given)))


def places(config, kind):
    return [
        idx
        for idx, layer in enumerate(layers_of(config))
        if any(isinstance(cache, kind) for cache in layer)
    ]


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


def test_all_layers_alike():
    """Without a word on layers each is attention, its head dim the hidden size over the heads."""
    geometry = ModelGeometry.from_config(LLAMA_31_8B)
    assert geometry.layers == ((FULL,),) * 32
    assert (geometry.model_dtype, geometry.context_len) == ("bfloat16", 131_072)


def test_names_of_layers():
    """`layer_types` of gpt-oss: window and full in turn."""
    assert places(GPT_OSS_120B, SlidingWindow) == list(range(0, 36, 2))
    assert places(GPT_OSS_120B, FullAttention) == list(range(1, 36, 2))


def test_a_pattern_of_windows_counts_from_one():
    """gemma-3: layers 5, 11, ..., 59 are full; the older name of the key is read as well."""
    assert places(GEMMA_3_27B, FullAttention) == list(range(5, 62, 6))
    older = {**without(GEMMA_3_27B, "sliding_window_pattern"), "_sliding_window_pattern": 6}
    assert layers_of(older) == layers_of(GEMMA_3_27B)
    letters = {**GEMMA_3_27B, "num_hidden_layers": 60, "sliding_window_pattern": "LLLLLG"}
    assert layers_of(letters) == layers_of(GEMMA_3_27B)[:60]


def test_latents_with_and_without_index_keys():
    """deepseek-v3 and v3.2; a layer that says "full_attention" has no index keys."""
    plain = Latent(kv_lora_rank=512, rope_dim=64)
    indexed = LatentIndexed(kv_lora_rank=512, rope_dim=64, index_head_dim=128)
    assert counted(DEEPSEEK_V3) == {(plain,): 61}
    assert counted(DEEPSEEK_V32) == {(indexed,): 61}
    for name, cache in (
        ("indexed_attention", indexed),
        ("deepseek_sparse_attention", indexed),
        ("full_attention", plain),
    ):
        assert counted({**DEEPSEEK_V32, "layer_types": [name] * 61}) == {(cache,): 61}


def test_compression_by_ratios_and_by_names():
    """deepseek-v4 in both spellings; the ratio behind the last layer is the draft's."""
    window = SharedWindow(dim=512, rope_dim=64, window=128)
    heavy = (
        window,
        Compressed(ratio=128, dim=512, rope_dim=64),
        CompressorState(num_tokens=128, dim=512),
    )
    light = (
        window,
        Compressed(ratio=4, dim=512, rope_dim=64, index_head_dim=128),
        CompressorState(num_tokens=8, dim=1024),
        CompressorState(num_tokens=8, dim=256),
    )
    assert layers_of(DEEPSEEK_V4) == (heavy, heavy, *(heavy, light) * 20, heavy)
    names = ["heavily_compressed_attention", "compressed_sparse_attention"]
    named = {
        **without(DEEPSEEK_V4, "compress_ratios", "qk_rope_head_dim"),
        "partial_rotary_factor": 0.125,
        "compress_rates": {names[0]: 128, names[1]: 4},
        "layer_types": [names[0], names[0], *names * 20, names[0]],
    }
    assert layers_of(named) == layers_of(DEEPSEEK_V4)
    alone = {**DEEPSEEK_V4, "compress_ratios": [0] * 43}
    assert counted(alone) == {(window,): 43}


def test_sparse_layers_by_flags_and_by_names():
    """minimax-m3: three plain layers, then sparse ones; only these have index keys."""
    plain = FullAttention(num_kv_heads=4, k_dim=128, v_dim=128)
    sparse = SparseIndexed(num_kv_heads=4, k_dim=128, v_dim=128, index_head_dim=128)
    assert layers_of(MINIMAX_M3) == ((plain,),) * 3 + ((sparse,),) * 57
    text = without(MINIMAX_M3["text_config"], "sparse_attention_config")
    names = ["full_attention"] * 3 + ["minimax_m3_sparse"] * 57
    named = {**text, "index_head_dim": 128, "layer_types": names, "dtype": "bfloat16"}
    assert layers_of(named) == layers_of(MINIMAX_M3)


def test_an_interval_of_full_layers_among_gated_delta_nets():
    """qwen3-next: layers 3, 7, ..., 47 are full; the state's dtype may be said."""
    state = RecurrentState(
        conv=(Heads(num=16, dim=128), Heads(num=16, dim=128), Heads(num=32, dim=128)),
        conv_kernel=4,
        state=Heads(num=32, dim=128 * 128),
    )
    assert places(QWEN3_NEXT_80B, FullAttention) == list(range(3, 48, 4))
    assert layers_of(QWEN3_NEXT_80B)[0] == (state,)
    narrow = layers_of({**QWEN3_NEXT_80B, "mamba_ssm_dtype": "bfloat16"})[0][0]
    assert narrow.state_dtype == "bfloat16"


def test_a_period_and_an_offset_among_mamba_layers():
    """jamba: layers 4, 12, 20, 28 are attention; the inner width is twice the hidden size."""
    state = RecurrentState(
        conv=(Heads(num=8192, dim=1),), conv_kernel=4, state=Heads(num=8192, dim=16)
    )
    assert places(JAMBA_01, FullAttention) == [4, 12, 20, 28]
    assert counted(JAMBA_01) == {(state,): 28, (FULL,): 4}


def test_two_lists_of_layers_that_count_from_one_or_from_zero():
    """kimi-linear: layers 3, 7, ..., 23 and the last are latents, the others KDA."""
    latent = Latent(kv_lora_rank=512, rope_dim=64)
    heads = Heads(num=32, dim=128)
    state = RecurrentState(
        conv=(heads, heads, heads), conv_kernel=4, state=Heads(num=32, dim=128 * 128)
    )
    assert counted(KIMI_LINEAR_48B) == {(latent,): 7, (state,): 20}
    assert places(KIMI_LINEAR_48B, Latent) == [3, 7, 11, 15, 19, 23, 26]
    linear = KIMI_LINEAR_48B["linear_attn_config"]
    from_zero = {
        **linear,
        **{key: [idx - 1 for idx in linear[key]] for key in ("full_attn_layers", "kda_layers")},
    }
    assert layers_of({**KIMI_LINEAR_48B, "linear_attn_config": from_zero}) == layers_of(
        KIMI_LINEAR_48B
    )


def test_a_list_of_attention_layers_among_mamba_2_layers():
    """bamba: "auto" head dims are the inner width over the heads, 8,192 / 128."""
    group = Heads(num=1, dim=128)
    state = RecurrentState(
        conv=(Heads(num=128, dim=64), group, group),
        conv_kernel=4,
        state=Heads(num=128, dim=64 * 128),
    )
    assert places(BAMBA_9B, FullAttention) == [9, 18, 27]
    assert counted(BAMBA_9B) == {(state,): 29, (FULL,): 3}


def test_a_pattern_of_letters():
    """nemotron-nano-9b: 27 Mamba-2 layers, 4 of attention, 25 that keep nothing."""
    group = Heads(num=8, dim=128)
    state = RecurrentState(
        conv=(Heads(num=128, dim=80), group, group),
        conv_kernel=4,
        state=Heads(num=128, dim=80 * 128),
    )
    assert counted(NEMOTRON_NANO_9B) == {(state,): 27, (FULL,): 4, (): 25}
    names = {"M": "mamba", "-": "mlp", "*": "attention"}
    named = {
        **without(NEMOTRON_NANO_9B, "hybrid_override_pattern"),
        "layers_block_type": [
            names[letter] for letter in NEMOTRON_NANO_9B["hybrid_override_pattern"]
        ],
    }
    assert layers_of(named) == layers_of(NEMOTRON_NANO_9B)


def test_flags_of_attention_among_lightning_layers():
    """minimax-m1: every eighth layer is attention; the others keep 64 heads of 128 x 128."""
    state = RecurrentState(state=Heads(num=64, dim=128 * 128))
    assert counted(MINIMAX_M1) == {(state,): 70, (FULL,): 10}
    assert places(MINIMAX_M1, FullAttention) == list(range(7, 80, 8))


def test_chunks_are_windows():
    """llama-4: every fourth layer is full, the others attend within chunks of 8,192."""
    assert places(LLAMA_4_MAVERICK, FullAttention) == list(range(3, 48, 4))
    chunk = SlidingWindow(num_kv_heads=8, k_dim=128, v_dim=128, window=8192)
    assert layers_of(LLAMA_4_MAVERICK)[0] == (chunk,)
    text = {**LLAMA_4_MAVERICK["text_config"], "no_rope_layers": [1, 1, 1, 0] * 12}
    assert layers_of(text) == layers_of(LLAMA_4_MAVERICK)


def test_windows_with_heads_of_their_own():
    """mimo-v2-flash: 4 KV heads in 9 full layers, 8 in 39 window ones; K 192, V 128."""
    full = FullAttention(num_kv_heads=4, k_dim=192, v_dim=128)
    window = SlidingWindow(num_kv_heads=8, k_dim=192, v_dim=128, window=128)
    assert counted(MIMO_V2_FLASH) == {(full,): 9, (window,): 39}


def test_short_convolutions():
    """lfm2: ten layers keep the last 2 inputs of a convolution, and nothing that recurs."""
    state = RecurrentState(conv=(Heads(num=2048, dim=1),), conv_kernel=3)
    full = FullAttention(num_kv_heads=8, k_dim=64, v_dim=64)
    assert counted(LFM2_1B) == {(state,): 10, (full,): 6}
    older = {**without(LFM2_1B, "layer_types"), "full_attn_idxs": [2, 5, 8, 10, 12, 14]}
    assert layers_of(older) == layers_of(LFM2_1B)


def test_a_pattern_that_repeats():
    """recurrentgemma: two recurrent layers, one of windows, over 26 layers."""
    channels = Heads(num=2560, dim=1)
    state = RecurrentState(conv=(channels,), conv_kernel=4, state=channels)
    window = SlidingWindow(num_kv_heads=1, k_dim=256, v_dim=256, window=2048)
    assert counted(RECURRENT_GEMMA_2B, context_len=8192) == {(state,): 18, (window,): 8}


def test_models_of_states_alone():
    """mamba-2 has no attention and no context; mamba-1 has its inner width of its own."""
    group = Heads(num=1, dim=128)
    state = RecurrentState(
        conv=(Heads(num=64, dim=64), group, group), conv_kernel=4, state=Heads(num=64, dim=64 * 128)
    )
    assert counted(MAMBA_2_1B, context_len=8192) == {(state,): 48}
    mamba = {
        "hidden_size": 768,
        "intermediate_size": 1536,
        "num_hidden_layers": 24,
        "state_size": 16,
        "conv_kernel": 4,
        "expand": 2,
    }
    state = RecurrentState(
        conv=(Heads(num=1536, dim=1),), conv_kernel=4, state=Heads(num=1536, dim=16)
    )
    assert counted(mamba, context_len=2048, model_dtype="float32") == {(state,): 24}


def test_layers_with_attention_beside_a_state():
    """A layer called "hybrid" keeps both; falcon-h1 does not say what its layers are."""
    with pytest.raises(ConfigError, match=r"layer_types .*hybrid"):
        layers_of(FALCON_H1_05B)
    layers = layers_of({**FALCON_H1_05B, "layers_block_type": ["hybrid"] * 36})
    full = FullAttention(num_kv_heads=2, k_dim=64, v_dim=64)
    group = Heads(num=1, dim=128)
    state = RecurrentState(
        conv=(Heads(num=24, dim=64), group, group), conv_kernel=4, state=Heads(num=24, dim=64 * 128)
    )
    assert layers == ((full, state),) * 36
    ids = {**FALCON_H1_05B, "hybrid_layer_ids": [6, 12]}
    assert places(ids, FullAttention) == [6, 12]
    assert places(ids, RecurrentState) == list(range(36))


def test_layers_that_read_the_cache_of_another_keep_nothing():
    """The last layers of gemma-3n, and every other layer with cross-layer attention of 2."""
    shared = {**LLAMA_31_8B, "num_kv_shared_layers": 12}
    assert layers_of(shared) == ((FULL,),) * 20 + ((),) * 12
    crossed = {**LLAMA_31_8B, "use_cla": True, "cla_share_factor": 2}
    assert layers_of(crossed) == ((FULL,), ()) * 16


def test_a_window_that_is_switched_off_or_begins_late():
    """qwen2: `use_sliding_window` and `max_window_layers` say which layers have the window."""
    off = {**LLAMA_31_8B, "sliding_window": 32768, "use_sliding_window": False}
    assert layers_of(off) == ((FULL,),) * 32
    on = {**off, "use_sliding_window": True, "max_window_layers": 28}
    assert places(on, SlidingWindow) == [28, 29, 30, 31]


@pytest.mark.parametrize(
    ("config", "num_kv_heads", "dim"),
    [
        # gpt-2, falcon-7b, falcon-40b, chatglm3-6b.
        ({"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024}, 12, 64),
        (
            {
                "num_hidden_layers": 32,
                "num_attention_heads": 71,
                "hidden_size": 4544,
                "multi_query": True,
                "new_decoder_architecture": False,
            },
            1,
            64,
        ),
        (
            {
                "num_hidden_layers": 60,
                "num_attention_heads": 128,
                "num_kv_heads": 8,
                "hidden_size": 8192,
                "multi_query": True,
                "new_decoder_architecture": True,
            },
            8,
            64,
        ),
        (
            {
                "num_layers": 28,
                "num_attention_heads": 32,
                "multi_query_group_num": 2,
                "kv_channels": 128,
                "seq_length": 8192,
            },
            2,
            128,
        ),
    ],
)
def test_older_names_of_heads_and_dims(config, num_kv_heads, dim):
    """Configs from before the names settled, and those where all queries share one head."""
    layers = layers_of({"max_position_embeddings": 2048, **config}, model_dtype="float16")
    assert set(layers) == {(FullAttention(num_kv_heads=num_kv_heads, k_dim=dim, v_dim=dim),)}


def test_heads_that_differ_from_layer_to_layer():
    """A list under the name of a number has a value for each layer."""
    config = {**LLAMA_31_8B, "num_hidden_layers": 2, "num_key_value_heads": [4, 8]}
    assert [layer[0].num_kv_heads for layer in layers_of(config)] == [4, 8]
    own = {**config, "num_key_value_heads": None, "num_key_value_heads_per_layer": [4, 2]}
    assert [layer[0].num_kv_heads for layer in layers_of(own)] == [4, 2]
    with pytest.raises(ConfigError, match=r"num_key_value_heads has 1 values.*layer 1"):
        layers_of({**config, "num_key_value_heads": [4]})
