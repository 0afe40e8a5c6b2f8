"""Compression: what a layer keeps that compresses its tokens."""

from __future__ import annotations

from kvlife.errors import ConfigError
from kvlife.sizing.layers import Compressed, CompressorState, Layer, SharedWindow
from kvlife.sizing.reading.keys import ConfigKeys, MissingKeys, ask
from kvlife.sizing.reading.layer_kinds import COMPRESSION, Kind
from kvlife.sizing.vetting import quoted


def shared_window(keys: ConfigKeys) -> SharedWindow:
    """The window of a layer whose keys are its values."""
    dim, rope_dim, window = ask(
        lambda: keys.whole("head_dim"),
        lambda: _rope_dim(keys),
        lambda: keys.whole("sliding_window"),
    )
    return SharedWindow(dim=dim, rope_dim=rope_dim, window=window)


def compressed(keys: ConfigKeys, kind: Kind) -> Layer:
    """A window, compressed entries beside it, and what is not compressed yet.

    A compressor with an index works on overlapping stretches of two ratios, and keeps two
    projections of each token; so does the compressor of its index keys.
    """
    window, ratio = ask(lambda: shared_window(keys), lambda: _ratio(keys, kind))
    if kind is Kind.COMPRESSED:
        entry = Compressed(ratio=ratio, dim=window.dim, rope_dim=window.rope_dim)
        return window, entry, CompressorState(num_tokens=ratio, dim=window.dim)
    index_dim = keys.whole("index_head_dim")
    entry = Compressed(
        ratio=ratio, dim=window.dim, rope_dim=window.rope_dim, index_head_dim=index_dim
    )
    return (
        window,
        entry,
        CompressorState(num_tokens=2 * ratio, dim=2 * window.dim),
        CompressorState(num_tokens=2 * ratio, dim=2 * index_dim),
    )


def _ratio(keys: ConfigKeys, kind: Kind) -> int:
    rates = keys.part("compress_rates")
    if rates is not None:
        if not rates.has(kind.value):
            raise MissingKeys([f"compress_rates[{kind.value!r}]"])
        return rates.whole(kind.value, low=2)
    if keys.has("compress_ratios"):
        (ratio,) = (ratio for ratio, known in COMPRESSION.items() if known is kind)
        return ratio
    raise MissingKeys(["compress_rates"])


def _rope_dim(keys: ConfigKeys) -> int:
    found = keys.whole_or_none("qk_rope_head_dim", low=0)
    if found is not None:
        return found
    share = keys.find("partial_rotary_factor")
    if share is None:
        raise MissingKeys(["qk_rope_head_dim or partial_rotary_factor"])
    factor = share[1]
    if not isinstance(factor, int | float) or not 0 <= factor <= 1:
        raise ConfigError(f"partial_rotary_factor is {quoted(factor)}: it must lie in [0, 1]")
    return int(keys.whole("head_dim") * factor)
