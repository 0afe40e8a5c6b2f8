"""Kinds: which layer is what, by names, patterns, lists of ids, periods and offsets."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from kvlife.errors import ConfigError
from kvlife.sizing.reading.keys import ConfigKeys, MissingKeys, either
from kvlife.sizing.vetting import quoted


class Kind(StrEnum):
    """What a config says that a layer is; ATTENTION is whatever the model's attention is."""

    ATTENTION = "attention"
    FULL = "full_attention"
    WINDOW = "sliding_attention"
    CHUNK = "chunked_attention"
    INDEXED = "indexed_attention"
    SPARSE = "sparse_attention"
    COMPRESSED_INDEXED = "compressed_sparse_attention"
    COMPRESSED = "heavily_compressed_attention"
    STATE = "linear_attention"
    HYBRID = "hybrid"
    NOTHING = "moe"


OTHER_NAMES = {
    "multihead_attention": Kind.ATTENTION,
    "global_attention": Kind.FULL,
    "sliding_window_attention": Kind.WINDOW,
    "local_attention": Kind.WINDOW,
    "swa_attention": Kind.WINDOW,
    "deepseek_sparse_attention": Kind.INDEXED,
    "minimax_m3_sparse": Kind.SPARSE,
    "block_sparse_attention": Kind.SPARSE,
    "mamba": Kind.STATE,
    "mamba2": Kind.STATE,
    "recurrent": Kind.STATE,
    "conv": Kind.STATE,
    "gated_deltanet": Kind.STATE,
    "kda": Kind.STATE,
    "lightning_attention": Kind.STATE,
    "mlp": Kind.NOTHING,
}
NAMES = {**{kind.value: kind for kind in Kind}, **OTHER_NAMES}
LETTERS = {"M": Kind.STATE, "*": Kind.ATTENTION, "-": Kind.NOTHING, "E": Kind.NOTHING}
WINDOW_LETTERS = {"L": Kind.WINDOW, "G": Kind.FULL}
COMPRESSION = {0: Kind.WINDOW, 4: Kind.COMPRESSED_INDEXED, 128: Kind.COMPRESSED}
ATTENTION_KEYS = ("num_attention_heads", "n_head", "kv_lora_rank", "num_key_value_heads")
STATE_KEYS = (
    "linear_num_value_heads",
    "linear_attn_config",
    "mamba_d_state",
    "mamba_num_heads",
    "ssm_state_size",
    "state_size",
    "conv_L_cache",
    "lru_width",
)
Kinds = tuple[Kind, ...]


def layer_kinds(keys: ConfigKeys, num_layers: int) -> Kinds:
    """The kind of each layer, by the first way of saying it that the config uses."""
    for reader in READERS:
        kinds = reader(keys, num_layers)
        if kinds is not None:
            return _without_shared(keys, kinds)
    raise MissingKeys(
        [either(ATTENTION_KEYS), f"for a model without attention {either(STATE_KEYS)}"]
    )


def _names(keys: ConfigKeys, num_layers: int) -> Kinds | None:
    found = keys.texts("layer_types", "layers_block_type", "mixer_types")
    if found is None:
        return _repeated_names(keys, num_layers)
    name, texts = found
    if len(texts) != num_layers:
        raise ConfigError(f"{name} has {len(texts)} names, and there are {num_layers} layers")
    return tuple(_kind(name, text) for text in texts)


def _repeated_names(keys: ConfigKeys, num_layers: int) -> Kinds | None:
    found = keys.texts("block_types")
    if found is None:
        return None
    name, texts = found
    return tuple(_kind(name, texts[idx % len(texts)]) for idx in range(num_layers))


def _kind(name: str, text: str) -> Kind:
    if text not in NAMES:
        raise ConfigError(
            f"{name} has {quoted(text)}: the kinds of layer that are known are {', '.join(NAMES)};"
            " describe others by hand, as ModelGeometry(layers=[...])"
        )
    return NAMES[text]


def _letters(keys: ConfigKeys, num_layers: int) -> Kinds | None:
    for name, letters in (
        ("hybrid_override_pattern", LETTERS),
        ("sliding_window_pattern", WINDOW_LETTERS),
    ):
        found = keys.find(name)
        if found is None or not isinstance(found[1], str):
            continue
        pattern = found[1]
        if not pattern or set(pattern) - set(letters):
            raise ConfigError(f"{name} is {quoted(pattern)}: its letters are {', '.join(letters)}")
        if num_layers % len(pattern):
            raise ConfigError(
                f"{name} has {len(pattern)} letters, and there are {num_layers} layers"
            )
        return tuple(letters[letter] for letter in pattern * (num_layers // len(pattern)))
    return None


def _ids(keys: ConfigKeys, num_layers: int) -> Kinds | None:
    linear = keys.part("linear_attn_config")
    if linear is not None and linear.has("full_attn_layers", "kda_layers"):
        return _two_lists(linear, num_layers)
    for name, chosen, rest in (
        ("attn_layer_indices", Kind.ATTENTION, Kind.STATE),
        ("full_attn_idxs", Kind.ATTENTION, Kind.STATE),
        ("hybrid_layer_ids", Kind.HYBRID, Kind.STATE),
    ):
        found = keys.numbers(name)
        if found is not None:
            ids = set(found[1])
            if any(idx >= num_layers for idx in ids):
                raise ConfigError(f"{name} names layer {max(ids)}, and there are {num_layers}")
            return tuple(chosen if idx in ids else rest for idx in range(num_layers))
    return None


def _two_lists(linear: ConfigKeys, num_layers: int) -> Kinds:
    full = set((linear.numbers("full_attn_layers") or ("", ()))[1])
    state = set((linear.numbers("kda_layers") or ("", ()))[1])
    # Configs count these layers from 1 or from 0; the two lists together say which.
    first = min(full | state, default=0)
    layers = range(first, first + num_layers)
    if full & state or full | state != set(layers) or first > 1:
        raise ConfigError(
            "full_attn_layers and kda_layers of linear_attn_config must name each of the"
            f" {num_layers} layers once, counted from 0 or from 1"
        )
    return tuple(Kind.ATTENTION if idx in full else Kind.STATE for idx in layers)


def _flags(keys: ConfigKeys, num_layers: int) -> Kinds | None:
    sparse = keys.part("sparse_attention_config")
    chunked = keys if keys.has("attention_chunk_size") else None
    for scope, name, kinds in (
        (keys, "attn_type_list", {0: Kind.STATE, 1: Kind.ATTENTION}),
        (keys, "hybrid_layer_pattern", {0: Kind.FULL, 1: Kind.WINDOW}),
        (chunked, "no_rope_layers", {0: Kind.FULL, 1: Kind.CHUNK}),
        (sparse, "sparse_attention_freq", {0: Kind.FULL, 1: Kind.SPARSE}),
        (keys, "compress_ratios", COMPRESSION),
    ):
        found = scope.numbers(name) if scope is not None else None
        if found is None or not found[1]:
            continue
        flags = found[1]
        if len(flags) < num_layers:
            raise ConfigError(f"{name} has {len(flags)} values, and there are {num_layers} layers")
        strange = sorted(set(flags[:num_layers]) - set(kinds))
        if strange:
            known = ", ".join(f"{flag}: {kind}" for flag, kind in kinds.items())
            raise ConfigError(
                f"{name} has {quoted(strange)}: its values are {known}; or add layer_types"
            )
        # Values behind the last layer are those of layers that draft.
        return tuple(kinds[flag] for flag in flags[:num_layers])
    return None


def _periods(keys: ConfigKeys, num_layers: int) -> Kinds | None:
    period = keys.whole_or_none("attn_layer_period")
    if period is not None:
        offset = keys.whole("attn_layer_offset", low=0)
        if offset >= period:
            raise ConfigError(f"attn_layer_offset {offset} is not below the period {period}")
        return tuple(
            Kind.ATTENTION if idx % period == offset else Kind.STATE for idx in range(num_layers)
        )
    every: tuple[tuple[tuple[str, ...], str | None, Kind, Kind], ...] = (
        (("full_attention_interval",), None, Kind.ATTENTION, Kind.STATE),
        (("layer_group_size",), None, Kind.ATTENTION, Kind.STATE),
        (("no_rope_layer_interval",), "attention_chunk_size", Kind.FULL, Kind.CHUNK),
        (
            ("sliding_window_pattern", "_sliding_window_pattern"),
            "sliding_window",
            Kind.FULL,
            Kind.WINDOW,
        ),
    )
    for names, beside, last, others in every:
        period = keys.whole_or_none(*names)
        if period is not None and (beside is None or keys.has(beside)):
            return tuple(last if (idx + 1) % period == 0 else others for idx in range(num_layers))
    return None


def _windows(keys: ConfigKeys, num_layers: int) -> Kinds | None:
    chunk = keys.whole_or_none("attention_chunk_size")
    if chunk is not None:
        raise MissingKeys(["layer_types or no_rope_layers or no_rope_layer_interval"])
    switched = keys.has("use_sliding_window")
    if not keys.has("sliding_window") or (switched and not keys.is_on("use_sliding_window")):
        return None
    if switched and keys.has("max_window_layers"):
        first = keys.whole("max_window_layers", low=0)
        return tuple(Kind.WINDOW if idx >= first else Kind.FULL for idx in range(num_layers))
    raise MissingKeys(
        ["layer_types or sliding_window_pattern (which layers have the sliding_window)"]
    )


def _all_alike(keys: ConfigKeys, num_layers: int) -> Kinds | None:
    attention, state = keys.has(*ATTENTION_KEYS), keys.has(*STATE_KEYS)
    if attention and state:
        raise MissingKeys(
            ["layer_types (which are attention, which recurrent, and which 'hybrid', that is both)"]
        )
    if not attention and not state:
        return None
    return (Kind.ATTENTION if attention else Kind.STATE,) * num_layers


def _without_shared(keys: ConfigKeys, kinds: Kinds) -> Kinds:
    """The kinds, where layers that read the cache of an earlier one keep nothing."""
    num_shared = keys.whole_or_none("num_kv_shared_layers", low=0) or 0
    if num_shared >= len(kinds):
        raise ConfigError(f"num_kv_shared_layers is {num_shared}, of {len(kinds)} layers")
    own = len(kinds) - num_shared
    share = keys.whole("cla_share_factor") if keys.is_on("use_cla") else 1
    return tuple(
        kind if idx < own and idx % share == 0 else Kind.NOTHING for idx, kind in enumerate(kinds)
    )


READERS: tuple[Callable[[ConfigKeys, int], Kinds | None], ...] = (
    _names,
    _letters,
    _ids,
    _flags,
    _periods,
    _windows,
    _all_alike,
)
