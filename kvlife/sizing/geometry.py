"""A model's shape as far as its caches go: what each layer keeps for a token or a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from kvlife.errors import ConfigError


def _whole(_: object, field: attrs.Attribute[int], value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{field.name} must be a whole number of at least 1, got {value!r}")


def _size() -> int:
    # attrs' stub types a field by its default; here the annotation beside it says what it is.
    return attrs.field(validator=_whole)  # type: ignore[no-any-return]


@attrs.frozen(kw_only=True)
class Heads:
    """`num` equal parts of `dim` values: what tensor parallelism hands out whole."""

    num: int = _size()
    dim: int = _size()


@attrs.frozen(kw_only=True)
class FullAttention:
    """Keys and values of every token."""

    num_kv_heads: int = _size()
    k_dim: int = _size()
    v_dim: int = _size()


@attrs.frozen(kw_only=True)
class SlidingWindow:
    """Keys and values of the last `window` tokens, the query included."""

    num_kv_heads: int = _size()
    k_dim: int = _size()
    v_dim: int = _size()
    window: int = _size()


@attrs.frozen(kw_only=True)
class Latent:
    """One latent vector a token, V inside, and the rotary part of K beside it."""

    kv_lora_rank: int = _size()
    rope_dim: int = _size()


@attrs.frozen(kw_only=True)
class LatentIndexed:
    """A latent with an index key a token, by which attention chooses what it reads."""

    kv_lora_rank: int = _size()
    rope_dim: int = _size()
    index_head_dim: int = _size()


@attrs.frozen(kw_only=True)
class SparseIndexed:
    """Keys and values of every token with an index key, by which blocks of them are chosen."""

    num_kv_heads: int = _size()
    k_dim: int = _size()
    v_dim: int = _size()
    index_head_dim: int = _size()


@attrs.frozen(kw_only=True)
class Compressed:
    """One entry for every `ratio` tokens, with an index key or none; its window stands beside it.

    The entry is one vector of `dim` values that serves as key and value.
    """

    ratio: int = _size()
    dim: int = _size()
    index_head_dim: int | None = None


@attrs.frozen(kw_only=True)
class RecurrentState:
    """A state of fixed size a request: the last inputs of a convolution and a recurrent state.

    `conv` lists what the convolution runs over, (`conv_kernel` - 1) inputs of it are kept in the
    model dtype; `state` is kept in `state_dtype`.
    """

    state: Heads
    conv: tuple[Heads, ...] = ()
    conv_kernel: int = 1
    state_dtype: str = "float32"


LayerCache = (
    FullAttention
    | SlidingWindow
    | Latent
    | LatentIndexed
    | SparseIndexed
    | Compressed
    | RecurrentState
)


def _as_layers(
    layers: Iterable[LayerCache | Iterable[LayerCache]],
) -> tuple[tuple[LayerCache, ...], ...]:
    return tuple((layer,) if isinstance(layer, LayerCache) else tuple(layer) for layer in layers)


@attrs.frozen(kw_only=True)
class ModelGeometry:
    """The layers of a model, each with the caches it keeps, one after another.

    A layer may be given as one cache, as several (attention beside a recurrent state, a window
    beside compressed entries), or as none (a layer of experts only, or one that reads the cache of
    another). `model_dtype` is torch's name of it.
    """

    layers: tuple[tuple[LayerCache, ...], ...] = attrs.field(converter=_as_layers)
    model_dtype: str = "bfloat16"
    context_len: int = _size()

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> ModelGeometry:
        """Read a Hugging Face config.json; raises `ConfigError` that names what it lacks."""
        raise NotImplementedError
