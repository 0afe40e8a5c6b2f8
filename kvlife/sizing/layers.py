"""The kinds of cache that a layer keeps: one small class each, sizes only."""

from __future__ import annotations

import attrs
from attrs import Attribute
from attrs.validators import optional

from kvlife.errors import ConfigError
from kvlife.sizing.vetting import vet_whole


def _positive(cache: object, field: Attribute[int], value: object) -> None:
    vet_whole(f"{field.name} of {type(cache).__name__}", value)


def _not_negative(cache: object, field: Attribute[int], value: object) -> None:
    vet_whole(f"{field.name} of {type(cache).__name__}", value, 0)


@attrs.frozen(kw_only=True)
class Heads:
    """`num` equal parts of `dim` values: what tensor parallelism hands out whole."""

    num: int = attrs.field(validator=_positive)
    dim: int = attrs.field(validator=_positive)


@attrs.frozen(kw_only=True)
class FullAttention:
    """Keys and values of every token."""

    num_kv_heads: int = attrs.field(validator=_positive)
    k_dim: int = attrs.field(validator=_positive)
    v_dim: int = attrs.field(validator=_positive)


@attrs.frozen(kw_only=True)
class SlidingWindow:
    """Keys and values of the last `window` tokens, the query included (or of a chunk of them)."""

    num_kv_heads: int = attrs.field(validator=_positive)
    k_dim: int = attrs.field(validator=_positive)
    v_dim: int = attrs.field(validator=_positive)
    window: int = attrs.field(validator=_positive)


@attrs.frozen(kw_only=True)
class Latent:
    """One latent vector a token, V inside, and beside it the `rope_dim` rotary values of K."""

    kv_lora_rank: int = attrs.field(validator=_positive)
    rope_dim: int = attrs.field(validator=_not_negative)


@attrs.frozen(kw_only=True)
class LatentIndexed:
    """A latent with an index key a token, by which attention chooses the tokens that it reads."""

    kv_lora_rank: int = attrs.field(validator=_positive)
    rope_dim: int = attrs.field(validator=_not_negative)
    index_head_dim: int = attrs.field(validator=_positive)


@attrs.frozen(kw_only=True)
class SparseIndexed:
    """Keys and values of every token, and an index key by which blocks of them are chosen."""

    num_kv_heads: int = attrs.field(validator=_positive)
    k_dim: int = attrs.field(validator=_positive)
    v_dim: int = attrs.field(validator=_positive)
    index_head_dim: int = attrs.field(validator=_positive)


@attrs.frozen(kw_only=True)
class SharedWindow:
    """One vector a token for the last `window` tokens, key and value at once.

    The last `rope_dim` of its `dim` values are rotary.
    """

    dim: int = attrs.field(validator=_positive)
    rope_dim: int = attrs.field(validator=_not_negative)
    window: int = attrs.field(validator=_positive)


@attrs.frozen(kw_only=True)
class Compressed:
    """One vector for every `ratio` tokens, key and value at once, with an index key or none.

    The window beside it is a cache of its own (`SharedWindow`), and so is what the compressor
    has not compressed yet (`CompressorState`).
    """

    ratio: int = attrs.field(validator=_positive)
    dim: int = attrs.field(validator=_positive)
    rope_dim: int = attrs.field(validator=_not_negative)
    index_head_dim: int | None = attrs.field(default=None, validator=optional(_positive))


@attrs.frozen(kw_only=True)
class CompressorState:
    """The last `num_tokens` inputs of a compressor, `dim` values and `dim` scores each, in fp32.

    It begins anew at the border of a page, so a request needs one and a prefix none.
    """

    num_tokens: int = attrs.field(validator=_positive)
    dim: int = attrs.field(validator=_positive)
    dtype: str = "float32"


@attrs.frozen(kw_only=True)
class RecurrentState:
    """A state of fixed size a request: the last inputs of a convolution, and what recurs.

    `conv` lists what the convolution runs over; its last (`conv_kernel` - 1) inputs are kept in
    the model's dtype, `state` in `state_dtype`.
    """

    conv: tuple[Heads, ...] = ()
    conv_kernel: int = attrs.field(default=1, validator=_positive)
    state: Heads | None = None
    state_dtype: str = "float32"

    def __attrs_post_init__(self) -> None:
        if self.state is None and (not self.conv or self.conv_kernel == 1):
            raise ConfigError("a RecurrentState has a state, or a convolution of 2 inputs or more")


MAX_LAYERS = 4096
LayerCache = (
    FullAttention
    | SlidingWindow
    | Latent
    | LatentIndexed
    | SparseIndexed
    | SharedWindow
    | Compressed
    | CompressorState
    | RecurrentState
)
Layer = tuple[LayerCache, ...]
