"""Caches: what a layer of each kind keeps."""

from __future__ import annotations

from kvlife.sizing.layers import Layer
from kvlife.sizing.reading.attention import attention, indexed_latent, latent, sparse, window
from kvlife.sizing.reading.compression import compressed, shared_window
from kvlife.sizing.reading.keys import ConfigKeys
from kvlife.sizing.reading.layer_kinds import Kind
from kvlife.sizing.reading.recurrence import recurrent_state

CHUNKS = ("attention_chunk_size",)
WINDOWS = ("sliding_window", "sliding_window_size", "window_size", "attention_window_size")


def layer_caches(keys: ConfigKeys, kind: Kind) -> Layer:
    """The caches of one layer; `keys` are those that the layer sees."""
    match kind:
        case Kind.NOTHING:
            return ()
        case Kind.STATE:
            return (recurrent_state(keys),)
        case Kind.HYBRID:
            return (*_attention(keys), recurrent_state(keys))
        case Kind.ATTENTION:
            return _attention(keys)
        case Kind.FULL:
            return (latent(keys) if keys.has("kv_lora_rank") else attention(keys),)
        case Kind.INDEXED:
            return (indexed_latent(keys),)
        case Kind.SPARSE:
            return (sparse(keys),)
        case Kind.CHUNK:
            return (window(keys, CHUNKS),)
        case Kind.WINDOW if keys.has("compress_rates", "compress_ratios"):
            return (shared_window(keys),)
        case Kind.WINDOW:
            return (window(keys, WINDOWS),)
        case Kind.COMPRESSED | Kind.COMPRESSED_INDEXED:
            return compressed(keys, kind)


def _attention(keys: ConfigKeys) -> Layer:
    """What the model's attention is where nothing more is said of the layer."""
    if keys.has("kv_lora_rank"):
        return (indexed_latent(keys) if keys.has("index_head_dim") else latent(keys),)
    if keys.has("attention_window_size"):
        return (window(keys, WINDOWS),)
    return (attention(keys),)
