"""Bytes of speculative drafts, beside those of their targets."""

import pytest
from model_configs import (
    DEEPSEEK_V4,
    GPT_OSS_120B,
    JAMBA_01,
    LLAMA_31_8B,
)
from sized import a_token, groups_of

from kvlife.errors import ConfigError
from kvlife.sizing import (
    Draft,
    FullAttention,
    ModelGeometry,
    Parallel,
    configure_kv_cache_dtype,
)


@pytest.mark.parametrize("algorithm", ["EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "eagle"])
def test_a_draft_adds_layers_of_the_target_size(algorithm):
    """llama-3.1-8b with one draft layer: 131,072 + 4,096."""
    draft = Draft(algorithm=algorithm, num_layers=1)
    assert a_token(LLAMA_31_8B, draft=draft) == 135_168


def test_a_draft_lies_beside_the_last_layers():
    """Of two pipeline stages, the second holds the draft."""
    draft = Draft(algorithm="EAGLE", num_layers=1)
    stages = [
        a_token(LLAMA_31_8B, parallel=Parallel(pp=2, pp_rank=rank), draft=draft) for rank in (0, 1)
    ]
    assert stages == [65_536, 69_632]


def test_a_draft_may_keep_a_wider_dtype_than_its_target():
    """Target in fp8: 65,536; a draft layer that stays in bf16: 4,096."""
    bf16 = configure_kv_cache_dtype("auto", "bfloat16")
    draft = Draft(algorithm="EAGLE", num_layers=1, dtype=bf16)
    assert a_token(LLAMA_31_8B, "fp8_e4m3", draft=draft) == 69_632


def test_a_draft_of_a_hybrid_is_full_attention():
    """gpt-oss: the draft's layer joins the full group, and the window group stays."""
    draft = Draft(algorithm="EAGLE", num_layers=2)
    groups = groups_of(GPT_OSS_120B, draft=draft)
    assert groups["full"].bytes_per_token == 36_864 + 2 * 2_048
    assert groups["swa"].bytes_per_token == 36_864


@pytest.mark.parametrize("algorithm", ["DFLASH", "DSPARK"])
def test_a_draft_of_its_own_size_has_its_own_cells(algorithm):
    """5 layers of 4 heads x (128 + 128) x 2 bytes: 10,240 beside the target's."""
    own = ModelGeometry(
        layers=[FullAttention(num_kv_heads=4, k_dim=128, v_dim=128)] * 5, context_len=131072
    )
    draft = Draft(algorithm=algorithm, geometry=own)
    assert a_token(LLAMA_31_8B, draft=draft) == 131_072 + 10_240
    # The draft is not split over the ranks of a context group: it keeps both tokens of an entry.
    group = groups_of(LLAMA_31_8B, parallel=Parallel(tp=2, dcp=2), draft=draft)["full"]
    assert group.bytes_per_token == 131_072 // 2 + 10_240


def test_the_draft_of_a_model_without_full_layers_is_a_window():
    """deepseek-v4 drafts with a layer of its window alone, 1,024 bytes a token."""
    draft = Draft(algorithm="NEXTN", num_layers=1)
    groups = groups_of(DEEPSEEK_V4, draft=draft)
    assert groups["swa"].bytes_per_token == 44 * 1_024


def test_a_draft_cannot_have_the_size_of_a_target_without_tokens():
    """A target of states alone has no cell size for a draft to take."""
    config = {key: value for key, value in JAMBA_01.items() if not key.startswith("attn_")}
    config["layer_types"] = ["mamba"] * 32
    with pytest.raises(ConfigError, match="keeps tokens"):
        groups_of(config, draft=Draft(algorithm="EAGLE", num_layers=1))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"algorithm": "MEDUSA"}, "EAGLE.*STANDALONE.*DFLASH.*DSPARK"),
        ({"algorithm": "EAGLE"}, "num_layers"),
        ({"algorithm": "DFLASH", "num_layers": 5}, "geometry"),
        ({"algorithm": "EAGLE", "num_layers": 0}, "num_layers"),
        ({"algorithm": "EAGLE", "num_layers": 1, "topk": -1}, "topk"),
    ],
)
def test_drafts_that_cannot_be_are_refused(fields, message):
    """The error names what is known, or what the draft lacks."""
    with pytest.raises(ConfigError, match=message):
        Draft(**fields)
