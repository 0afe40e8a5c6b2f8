"""A model's shape as far as its caches go: what each layer keeps for a token or a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from kvlife.errors import ConfigError
from kvlife.sizing.dtypes import named_dtype
from kvlife.sizing.layers import (
    Layer,
    LayerCache,
    RecurrentState,
    SharedWindow,
    SlidingWindow,
)
from kvlife.sizing.reading.model import read_model
from kvlife.sizing.vetting import vet_whole


def _as_layers(layers: Iterable[LayerCache | Iterable[LayerCache]]) -> tuple[Layer, ...]:
    return tuple((layer,) if isinstance(layer, LayerCache) else tuple(layer) for layer in layers)


@attrs.frozen(kw_only=True)
class ModelGeometry:
    """The layers of a model, each with the caches it keeps, one after another.

    A layer may be given as one cache, as several (attention beside a recurrent state, a window
    beside compressed entries), or as none (a layer of experts only, or one that reads the cache of
    another). `model_dtype` is the compute dtype, by torch's name; `context_len` is in tokens.
    """

    layers: tuple[Layer, ...] = attrs.field(converter=_as_layers)
    model_dtype: str = "bfloat16"
    context_len: int

    def __attrs_post_init__(self) -> None:
        vet_whole("context_len", self.context_len)
        named_dtype(self.model_dtype)
        if not any(self.layers):
            raise ConfigError("no layer keeps a cache: there is nothing to size")
        for idx, layer in enumerate(self.layers):
            for cache in layer:
                self._check(idx, cache)

    def _check(self, idx: int, cache: object) -> None:
        if not isinstance(cache, LayerCache):
            raise ConfigError(f"layer {idx} has {cache!r}, which is no kind of cache")
        if isinstance(cache, RecurrentState):
            named_dtype(cache.state_dtype)
        if isinstance(cache, SlidingWindow | SharedWindow) and cache.window > self.context_len:
            raise ConfigError(
                f"layer {idx} has a window of {cache.window:,} tokens, and the context is"
                f" {self.context_len:,}: raise the context to {cache.window:,} or more, or make the"
                " layer full attention, which it is within this context"
            )

    @property
    def num_layers(self) -> int:
        """Layers in all, with and without a cache."""
        return len(self.layers)

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, object],
        *,
        context_len: int | None = None,
        model_dtype: str | None = None,
    ) -> ModelGeometry:
        """Read a Hugging Face config.json; the language model of one with several.

        `context_len` and `model_dtype` go before what the config says. Raises `ConfigError` that
        names the keys that are missing, or the one whose value cannot be.
        """
        reading = read_model(config, context_len=context_len, model_dtype=model_dtype)
        return cls(
            layers=reading.layers,
            model_dtype=reading.model_dtype,
            context_len=reading.context_len,
        )
