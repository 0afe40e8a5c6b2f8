"""The config files of real models, where they are at hand: every one is read to its bytes."""

import json

import pytest

from kvlife.sizing import Draft, ModelGeometry, Parallel, configure_kv_cache_dtype, group_bytes

# Bytes a token by group, and of a slot for states; worked out in test_group_bytes.
V4_COMPRESSOR = 23 * 128 * 2 * 512 * 4 + 20 * 8 * 2 * 1_024 * 4 + 20 * 8 * 2 * 256 * 4
BYTES = {
    "llama-3.1-8b": {"full": 131_072},
    "gpt-oss-120b": {"full": 36_864, "swa": 36_864},
    "gemma-3-27b": {"full": 81_920, "swa": 425_984},
    "deepseek-v3": {"full": 70_272},
    "deepseek-v3.2": {"full": 78_324},
    "deepseek-v4": {
        "compressed-4": 5_780,
        "compressed-128": 184,
        "swa": 44_032,
        "compressor": V4_COMPRESSOR,
    },
    # This file calls all 60 layers full attention: 4 heads x (128 + 128) x 2 bytes, no index keys.
    "minimax-m3-text": {"full": 122_880},
    "qwen3-next-80b": {"full": 24_576, "state": 77_266_944},
    "jamba-v0.1": {"full": 16_384, "state": 16_056_320},
}
OTHER_DTYPES = [
    ("llama-3.1-8b", "fp8_e4m3", 65_536),
    ("llama-3.1-8b", "mxfp8", 67_584),
    ("llama-3.1-8b", "nvfp4", 36_864),
    ("deepseek-v3.2", "fp8_e4m3", 48_068),
]


def read(models, name):
    return ModelGeometry.from_config(json.loads((models / f"{name}.json").read_text()))


def bytes_of(geometry, dtype="auto", parallel=None, draft=None):
    kv_dtype = configure_kv_cache_dtype(dtype, geometry.model_dtype)
    groups = group_bytes(geometry, kv_dtype, parallel or Parallel(), draft)
    return {group.name: group.bytes_per_token or group.bytes_per_slot for group in groups}


def test_every_file_has_its_value_here(models):
    """A config that is added asks for its bytes by hand."""
    assert sorted(path.stem for path in models.glob("*.json")) == sorted(BYTES)


@pytest.mark.parametrize("name", BYTES)
def test_each_file_comes_to_its_bytes(models, name):
    """From the file to the bytes of each group, in the model's dtype, on one rank."""
    assert bytes_of(read(models, name)) == BYTES[name]


@pytest.mark.parametrize(("name", "dtype", "num_bytes"), OTHER_DTYPES)
def test_other_dtypes(models, name, dtype, num_bytes):
    """fp8, mxfp8 and nvfp4 with their scales."""
    assert bytes_of(read(models, name), dtype) == {"full": num_bytes}


def test_ranks_and_a_draft(models):
    """llama-3.1-8b over 8 and 16 ranks, and with one EAGLE layer."""
    geometry = read(models, "llama-3.1-8b")
    for tp in (8, 16):
        assert bytes_of(geometry, parallel=Parallel(tp=tp)) == {"full": 16_384}
    draft = Draft(algorithm="EAGLE", num_layers=1)
    assert bytes_of(geometry, draft=draft) == {"full": 135_168}
