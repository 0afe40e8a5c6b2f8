"""Bytes of tokens and slots: the values of real models, worked out by hand."""

import re
from fractions import Fraction

import pytest
from model_configs import (
    BAMBA_9B,
    DEEPSEEK_V3,
    DEEPSEEK_V4,
    DEEPSEEK_V32,
    GEMMA_3_27B,
    GPT_OSS_120B,
    JAMBA_01,
    KIMI_LINEAR_48B,
    LLAMA_31_8B,
    MINIMAX_M3,
    QWEN3_5_397B,
    QWEN3_NEXT_80B,
    ZAMBA_2_27B,
)
from sized import ONE_RANK, a_token, groups_of

from kvlife.sizing import (
    FullAttention,
    ModelGeometry,
    Parallel,
    SlidingWindow,
    configure_kv_cache_dtype,
    group_bytes,
)


# 32 layers x 8 KV heads x (128 + 128) = 65,536 values a token.
@pytest.mark.parametrize(
    ("dtype", "num_bytes"),
    [
        ("bf16", 65_536 * 2),
        ("fp16", 65_536 * 2),
        ("fp8_e4m3", 65_536),
        ("fp8_e5m2", 65_536),
        ("mxfp8", 65_536 + 2_048),  # a byte of scale for each 32 values
        ("nvfp4", 32_768 + 4_096),  # half a byte a value, a byte of scale for each 16
    ],
)
def test_each_dtype_counts_its_values_and_its_scales(dtype, num_bytes):
    """llama-3.1-8b: 131,072 bytes a token in bf16, 67,584 in mxfp8, 36,864 in nvfp4."""
    assert a_token(LLAMA_31_8B, dtype) == num_bytes


@pytest.mark.parametrize(("tp", "num_bytes"), [(1, 131_072), (8, 16_384), (16, 16_384)])
def test_heads_are_split_and_below_one_a_rank_replicated(tp, num_bytes):
    """llama-3.1-8b has 8 KV heads: 8 ranks hold one each, and so do 16."""
    assert a_token(LLAMA_31_8B, parallel=Parallel(tp=tp)) == num_bytes


def test_copies_of_the_attention_share_no_heads():
    """Of 8 ranks with 4 copies of the attention, 2 share its 8 heads: 4 heads each."""
    assert a_token(LLAMA_31_8B, parallel=Parallel(tp=8, attention_dp=4)) == 65_536


@pytest.mark.parametrize(
    ("tp", "dcp", "num_bytes"), [(8, 2, 16_384), (16, 2, 8_192), (8, 8, 16_384)]
)
def test_decode_context_ranks_each_keep_their_part_of_the_tokens(tp, dcp, num_bytes):
    """Ranks of one context group hold the same heads, and an entry for each of `dcp` tokens."""
    groups = groups_of(LLAMA_31_8B, parallel=Parallel(tp=tp, dcp=dcp))
    assert groups["full"].tokens_per_entry == dcp
    assert groups["full"].bytes_per_token == num_bytes


def test_pipeline_stages_have_their_layers():
    """gpt-oss over 4 stages: 9 layers each, the first with 5 window and 4 full ones."""
    groups = groups_of(GPT_OSS_120B, parallel=Parallel(pp=4, pp_rank=0))
    assert groups["swa"].bytes_per_token == 5 * 2_048
    assert groups["full"].bytes_per_token == 4 * 2_048


def test_a_stage_without_layers_of_a_group_still_has_the_group():
    """Every rank plans the same groups, so that they can agree on sizes."""
    layers = [
        SlidingWindow(num_kv_heads=2, k_dim=64, v_dim=64, window=8),
        FullAttention(num_kv_heads=2, k_dim=64, v_dim=64),
    ]
    geometry = ModelGeometry(layers=layers, context_len=64)
    dtype = configure_kv_cache_dtype("auto", "bfloat16")
    for rank, (full, swa) in enumerate([(0, 512), (512, 0)]):
        groups = group_bytes(geometry, dtype, Parallel(pp=2, pp_rank=rank))
        assert [group.name for group in groups] == ["full", "swa"]
        assert [group.bytes_per_token for group in groups] == [full, swa]


def test_window_and_full_layers_are_two_groups():
    """gpt-oss-120b: 18 + 18 layers of 8 heads x (64 + 64) x 2 bytes; the window is 128."""
    groups = groups_of(GPT_OSS_120B)
    assert groups["full"].bytes_per_token == 36_864
    assert groups["swa"].bytes_per_token == 36_864
    assert groups["swa"].window == 128
    assert groups["full"].window is None


def test_a_period_names_the_full_layers():
    """gemma-3-27b: 10 full layers of 8,192 bytes, 52 window layers; the window is 1,024."""
    groups = groups_of(GEMMA_3_27B)
    assert groups["full"].bytes_per_token == 81_920
    assert groups["swa"].bytes_per_token == 425_984
    assert groups["swa"].window == 1_024


def test_a_latent_holds_keys_and_values_at_once():
    """deepseek-v3: 61 layers of (512 + 64) values; every tensor-parallel rank has them all."""
    assert a_token(DEEPSEEK_V3) == 70_272
    assert a_token(DEEPSEEK_V3, "fp8_e4m3") == 35_136
    assert a_token(DEEPSEEK_V3, parallel=Parallel(tp=16)) == 70_272
    assert a_token(DEEPSEEK_V3, parallel=Parallel(tp=8, dcp=8)) == 8_784


def test_index_keys_are_counted():
    """deepseek-v3.2: 61 x 132 bytes of index keys beside the latents' 70,272."""
    assert a_token(DEEPSEEK_V32) == 78_324


def test_the_fp8_layout_of_an_indexed_latent():
    """61 x 656 (512 fp8, 4 scales of 4 bytes, 64 rotary values in bf16) + 61 x 132."""
    assert a_token(DEEPSEEK_V32, "fp8_e4m3") == 48_068
    (cell,) = groups_of(DEEPSEEK_V32, "fp8_e4m3")["full"].cells
    sizes = {part.name: part.num_bytes for part in cell.parts}
    assert sizes == {
        "latent": 512,
        "latent_scale": 16,
        "rope": 128,
        "index_k": 128,
        "index_scale": 4,
    }


def test_the_device_has_the_index_keys_of_tokens_on_the_host():
    """A ratio of 4: each token of the device pays for 4 index keys, 61 x (1,152 + 4 x 132)."""
    assert a_token(DEEPSEEK_V32, host_to_device_ratio=4) == 102_480


def test_the_device_has_all_entries_that_are_not_fetched_by_choice():
    """V4 with a ratio of 2: indexed entries have 2 index keys, the others are all there."""
    groups = groups_of(DEEPSEEK_V4, host_to_device_ratio=2)
    assert groups["compressed-4"].bytes_per_token == Fraction(20 * (1_024 + 2 * 132), 4)
    assert groups["compressed-128"].bytes_per_token == 2 * 23 * 8


def test_compressed_layers_have_entries_windows_and_what_is_not_compressed_yet():
    """deepseek-v4: 20 layers at ratio 4 with index keys, 23 at 128, and a window in all 43."""
    groups = groups_of(DEEPSEEK_V4)
    assert list(groups) == ["compressed-4", "compressed-128", "swa", "compressor"]
    assert groups["compressed-4"].entry_bytes == 20 * (512 * 2 + 128 + 4)
    assert groups["compressed-4"].bytes_per_token == 5_780
    assert groups["compressed-128"].bytes_per_token == 23 * 8
    assert groups["swa"].bytes_per_token == 43 * 1_024
    assert groups["swa"].window == 128
    # Ratio 128: the last 128 tokens, 512 values and scores in fp32. Ratio 4: two stretches of 4
    # tokens in two projections, for the entries (512) and for their index keys (128).
    raw = 23 * 128 * 2 * 512 * 4 + 20 * 8 * 2 * 1_024 * 4 + 20 * 8 * 2 * 256 * 4
    assert groups["compressor"].bytes_per_slot == raw
    assert groups["compressor"].bytes_per_token == 0
    assert not groups["compressor"].is_published


def test_the_fp8_layout_of_a_vector_that_is_key_and_value():
    """584 bytes: 448 fp8, 7 scales of a byte padded to 8, and 64 rotary values in bf16."""
    groups = groups_of(DEEPSEEK_V4, "fp8_e4m3")
    assert groups["swa"].bytes_per_token == 43 * 584
    assert groups["compressed-128"].bytes_per_token == Fraction(23 * 584, 128)


def test_sparse_attention_counts_index_keys_of_sparse_layers_alone():
    """minimax-m3: 60 layers x 2,048 bytes, and 57 index keys of 128 values in bf16."""
    assert a_token(MINIMAX_M3) == 60 * 2_048 + 57 * 256
    # The index keys stay in the model's dtype.
    assert a_token(MINIMAX_M3, "fp8_e4m3") == 60 * 1_024 + 57 * 256


def test_a_gated_delta_net_has_a_slot():
    """qwen3-next: 36 layers of 3 x 8,192 x 2 conv bytes and 32 x 128 x 128 x 4 recurrent ones."""
    groups = groups_of(QWEN3_NEXT_80B)
    assert groups["full"].bytes_per_token == 24_576
    assert groups["state"].bytes_per_slot == 36 * (49_152 + 2_097_152) == 77_266_944
    assert groups["state"].is_published


def test_a_model_inside_a_config_of_several():
    """qwen3.5: 15 layers of 2 heads x 512 x 2; 45 of 3 x 12,288 x 2 and 64 x 128 x 128 x 4."""
    groups = groups_of(QWEN3_5_397B)
    assert groups["full"].bytes_per_token == 30_720
    assert groups["state"].bytes_per_slot == 45 * (73_728 + 4_194_304)


def test_layers_with_attention_and_a_state():
    """zamba2: 9 of 54 layers keep 32 heads of 160 as well; all keep a state of 80 heads of 64."""
    groups = groups_of(ZAMBA_2_27B)
    assert groups["full"].bytes_per_token == 9 * 32 * (160 + 160) * 2
    assert groups["state"].bytes_per_slot == 54 * (3 * (5_120 + 2 * 64) * 2 + 80 * 64 * 64 * 4)


def test_a_state_is_split_over_all_ranks_that_share_the_attention():
    """qwen3-next over 8 ranks: 2 + 2 + 4 heads of the conv, 4 of the state; KV heads replicate."""
    for parallel in (Parallel(tp=8), Parallel(tp=8, dcp=4), Parallel(tp=16, attention_dp=2)):
        groups = groups_of(QWEN3_NEXT_80B, parallel=parallel)
        assert groups["state"].bytes_per_slot == 77_266_944 // 8
    assert groups_of(QWEN3_NEXT_80B, parallel=Parallel(tp=8))["full"].bytes_per_token == 12_288


def test_mamba_has_a_slot():
    """jamba: 28 layers of 3 x 8,192 x 2 conv bytes and 8,192 x 16 x 4 recurrent ones."""
    groups = groups_of(JAMBA_01)
    assert groups["full"].bytes_per_token == 16_384
    assert groups["state"].bytes_per_slot == 28 * (49_152 + 524_288) == 16_056_320


def test_mamba_2_groups_below_one_a_rank_are_replicated():
    """Bamba over 8 ranks: 16 heads x 64 and one whole group of B and of C, 128 each."""
    slot = groups_of(BAMBA_9B)["state"].bytes_per_slot
    assert slot == 29 * (3 * (8_192 + 2 * 128) * 2 + 128 * 64 * 128 * 4)
    slot = groups_of(BAMBA_9B, parallel=Parallel(tp=8))["state"].bytes_per_slot
    assert slot == 29 * (3 * (1_024 + 2 * 128) * 2 + 16 * 64 * 128 * 4)


def test_latents_beside_states():
    """kimi-linear: 7 latents of 1,152 bytes; 20 slots of 3 x 12,288 x 2 + 32 x 128 x 128 x 4."""
    groups = groups_of(KIMI_LINEAR_48B)
    assert groups["full"].bytes_per_token == 8_064
    assert groups["state"].bytes_per_slot == 20 * (73_728 + 2_097_152)


def test_windows_of_several_sizes_are_groups_of_their_own():
    """Each lifetime rule is a group; the widest window stands first."""
    layers = [SlidingWindow(num_kv_heads=1, k_dim=64, v_dim=64, window=w) for w in (8, 32, 8)]
    geometry = ModelGeometry(layers=layers, context_len=64)
    groups = group_bytes(geometry, configure_kv_cache_dtype("auto", "bfloat16"), ONE_RANK)
    assert [(group.name, group.bytes_per_token) for group in groups] == [
        ("swa-32", 256),
        ("swa-8", 512),
    ]


def test_a_figure_says_how_it_came_about():
    """The derivation has the arithmetic in numbers, and the inputs by name."""
    group = groups_of(LLAMA_31_8B, parallel=Parallel(tp=8))["full"]
    assert str(group.derivation) == (
        "16,384 bytes a token = 32 layers x (k 1 x 128 x 2 + v 1 x 128 x 2)"
    )
    inputs = dict(group.derivation.inputs)
    assert inputs["full attention: num_kv_heads"] == 8
    assert inputs["full attention: KV heads on this rank"] == 1
    assert inputs["full attention: dtype"] == "bf16"


def test_cells_of_a_group_have_names_of_their_own():
    """The three compressors' states of deepseek-v4 are numbered, and so are their inputs."""
    group = groups_of(DEEPSEEK_V4)["compressor"]
    assert [cell.kind for cell in group.cells] == [
        "compressor state",
        "compressor state 2",
        "compressor state 3",
    ]
    inputs = dict(group.derivation.inputs)
    assert inputs["compressor state: num_tokens"] == 128
    assert inputs["compressor state 2: num_tokens"] == 8
    assert inputs["compressor state 3: dim"] == 256


def test_the_arithmetic_of_a_derivation_gives_its_value():
    """The formula, read as Python, is the figure: of groups of every kind."""
    for config in (LLAMA_31_8B, DEEPSEEK_V32, DEEPSEEK_V4, QWEN3_NEXT_80B, JAMBA_01, MINIMAX_M3):
        for group in groups_of(config).values():
            arithmetic = re.sub("[a-z_]+", "", group.derivation.formula.replace(" x ", " * "))
            # The text is the test's own: figures and signs.
            assert eval(arithmetic, {}) == group.derivation.value > 0  # noqa: S307
