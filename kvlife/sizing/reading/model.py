"""Reading a whole config: which part describes the language model, and what its layers keep."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import attrs

from kvlife.errors import ConfigError
from kvlife.sizing.layers import MAX_LAYERS, Layer
from kvlife.sizing.reading.keys import ConfigKeys, MissingKeys, ask, either
from kvlife.sizing.reading.layer_caches import layer_caches
from kvlife.sizing.reading.layer_kinds import layer_kinds
from kvlife.sizing.vetting import quoted

# Where configs of several models in one keep the language model, from the outside in.
LANGUAGE_PARTS = ("thinker_config", "text_config", "llm_config", "language_config")
LAYER_COUNTS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
CONTEXT_LENGTHS = (
    "max_position_embeddings",
    "model_max_length",
    "n_positions",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    "n_ctx",
)
DTYPES = ("torch_dtype", "dtype")
# What changes what layers keep, in ways that are not read; false or empty is as good as absent.
NOT_READ = {
    "block_configs": "what each layer has, one by one",
    "cross_attention_layers": "layers that keep what they read of another model",
    "is_encoder_decoder": "a decoder that keeps what it reads of an encoder",
}


@attrs.frozen(kw_only=True)
class ModelReading:
    """What a config says of a model's caches."""

    layers: tuple[Layer, ...]
    model_dtype: str
    context_len: int


def read_model(
    config: Mapping[str, object], *, context_len: int | None, model_dtype: str | None
) -> ModelReading:
    """The layers, dtype and context of a config; what is given goes before what it says."""
    if not isinstance(config, Mapping):
        raise ConfigError(f"a config holds keys and values, got {type(config).__name__}")
    keys = ConfigKeys(_language_part(config))
    size, layers = ask(
        lambda: ask(
            lambda: keys.whole(*CONTEXT_LENGTHS) if context_len is None else context_len,
            lambda: _dtype(keys, ConfigKeys(config)) if model_dtype is None else model_dtype,
        ),
        lambda: _layers(keys),
    )
    return ModelReading(layers=layers, context_len=size[0], model_dtype=size[1])


def _layers(keys: ConfigKeys) -> tuple[Layer, ...]:
    for name, what in NOT_READ.items():
        found = keys.find(name)
        if found is not None and found[1]:
            raise ConfigError(
                f"{name} ({what}) is not read: describe the layers by hand, as"
                " ModelGeometry(layers=[...])"
            )
    num_layers = keys.whole(*LAYER_COUNTS)
    if num_layers > MAX_LAYERS:
        raise ConfigError(
            f"the config has {quoted(num_layers)} layers: at most {MAX_LAYERS} are read"
        )
    kinds = layer_kinds(keys, num_layers)
    return ask(*(partial(layer_caches, keys.of_layer(idx), kind) for idx, kind in enumerate(kinds)))


def _language_part(config: Mapping[str, object]) -> Mapping[str, object]:
    for name in LANGUAGE_PARTS:
        inner = config.get(name)
        if isinstance(inner, Mapping) and not ConfigKeys(config).has(*LAYER_COUNTS):
            config = inner
    return config


def _dtype(*scopes: ConfigKeys) -> str:
    for keys in scopes:
        found = keys.find(*DTYPES)
        if found is not None:
            name, value = found
            if not isinstance(value, str):
                raise ConfigError(f"{name} is {quoted(value)}: it must be a name, as bfloat16")
            return value.removeprefix("torch.")
    raise MissingKeys([either(DTYPES)])
