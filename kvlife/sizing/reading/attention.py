"""Attention: which heads and dims it keeps of a token."""

from __future__ import annotations

from collections.abc import Sequence

from kvlife.errors import ConfigError
from kvlife.sizing.layers import (
    FullAttention,
    Latent,
    LatentIndexed,
    SlidingWindow,
    SparseIndexed,
)
from kvlife.sizing.reading.keys import ConfigKeys, MissingKeys, ask

QUERY_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
KV_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "num_query_groups",
    "num_attention_groups",
    "multi_query_group_num",
)
HEAD_DIMS = ("attention_head_dim", "head_dim", "kv_channels")
WIDTHS = ("attention_hidden_size", "hidden_size", "n_embd", "d_model")


def attention(keys: ConfigKeys) -> FullAttention:
    """Keys and values of all tokens."""
    num_kv_heads, k_dim = ask(
        lambda: _kv_heads(keys, "num_global_key_value_heads"),
        lambda: _head_dim(keys, "global_head_dim"),
    )
    v_dim = keys.whole_or_none("v_head_dim") or k_dim
    return FullAttention(num_kv_heads=num_kv_heads, k_dim=k_dim, v_dim=v_dim)


def window(keys: ConfigKeys, names: Sequence[str]) -> SlidingWindow:
    """Keys and values of a window, whose size stands under one of `names`."""
    num_kv_heads, k_dim, width = ask(
        lambda: _kv_heads(keys, "swa_num_key_value_heads"),
        lambda: _head_dim(keys, "swa_head_dim"),
        lambda: keys.whole(*names),
    )
    v_dim = keys.whole_or_none("swa_v_head_dim", "v_head_dim") or k_dim
    return SlidingWindow(num_kv_heads=num_kv_heads, k_dim=k_dim, v_dim=v_dim, window=width)


def latent(keys: ConfigKeys) -> Latent:
    """A latent with its rotary part."""
    rank, rope_dim = ask(
        lambda: keys.whole("kv_lora_rank"), lambda: keys.whole("qk_rope_head_dim", low=0)
    )
    return Latent(kv_lora_rank=rank, rope_dim=rope_dim)


def indexed_latent(keys: ConfigKeys) -> LatentIndexed:
    """A latent with its rotary part and an index key."""
    rank, rope_dim, index_dim = ask(
        lambda: keys.whole("kv_lora_rank"),
        lambda: keys.whole("qk_rope_head_dim", low=0),
        lambda: keys.whole("index_head_dim"),
    )
    return LatentIndexed(kv_lora_rank=rank, rope_dim=rope_dim, index_head_dim=index_dim)


def sparse(keys: ConfigKeys) -> SparseIndexed:
    """Keys and values of all tokens, and an index key."""
    part = keys.part("sparse_attention_config")
    full, index_dim = ask(lambda: attention(keys), lambda: _index_dim(keys, part))
    unused = part.whole_or_none("sparse_disable_index_value", low=0) if part is not None else None
    if unused == 0:
        raise ConfigError(
            "sparse_disable_index_value is 0: a layer that keeps index values beside its index"
            " keys is not known; describe it by hand, as ModelGeometry(layers=[...])"
        )
    return SparseIndexed(
        num_kv_heads=full.num_kv_heads,
        k_dim=full.k_dim,
        v_dim=full.v_dim,
        index_head_dim=index_dim,
    )


def _index_dim(keys: ConfigKeys, part: ConfigKeys | None) -> int:
    if part is not None and part.has("sparse_index_dim"):
        return part.whole("sparse_index_dim")
    return keys.whole("index_head_dim")


def _kv_heads(keys: ConfigKeys, own: str) -> int:
    if keys.is_on("multi_query") and not keys.is_on("new_decoder_architecture"):
        return 1
    found = keys.whole_or_none(own, "num_key_value_heads_per_layer", *KV_HEADS)
    # Without a number of their own, there are as many KV heads as query heads.
    return keys.whole(*KV_HEADS, *QUERY_HEADS) if found is None else found


def _head_dim(keys: ConfigKeys, own: str) -> int:
    found = keys.whole_or_none(own, *HEAD_DIMS)
    if found is not None:
        return found
    if not keys.has(*WIDTHS) or not keys.has(*QUERY_HEADS):
        raise MissingKeys(["head_dim (or hidden_size and num_attention_heads)"])
    width, num_heads = keys.whole(*WIDTHS), keys.whole(*QUERY_HEADS)
    if width % num_heads:
        raise ConfigError(
            f"the config has no head_dim, and {num_heads} heads do not divide the hidden size"
            f" {width}: add head_dim"
        )
    return width // num_heads
