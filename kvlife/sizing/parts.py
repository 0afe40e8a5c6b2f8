"""What one entry (or slot) of each kind of cache is made of, in one layer, on one rank."""

from __future__ import annotations

import math

import attrs

from kvlife.errors import ConfigError
from kvlife.sizing.dtypes import KvDtype, named_dtype
from kvlife.sizing.figures import Value
from kvlife.sizing.layers import (
    Compressed,
    CompressorState,
    FullAttention,
    Latent,
    LatentIndexed,
    LayerCache,
    RecurrentState,
    SharedWindow,
    SlidingWindow,
    SparseIndexed,
)
from kvlife.sizing.parallel import Parallel, heads_on_rank

# Latents and shared vectors in fp8 keep their rotary values wider, and scales among the values.
ROPE_DTYPE = "bfloat16"
LATENT_TILE = 128
SHARED_TILE = 64
SHARED_SCALES_ALIGNMENT = 8
INDEX_TILE = 128


@attrs.frozen(kw_only=True)
class CellPart:
    """One tensor's part of an entry (or slot) in one layer: `shape` of `dtype` (torch's name)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    itemsize: int

    @property
    def num_bytes(self) -> int:
        """Bytes of this part of one entry."""
        return math.prod(self.shape) * self.itemsize

    @property
    def formula(self) -> str:
        """The arithmetic of `num_bytes`: `k 8 x 128 x 2`."""
        return f"{self.name} {' x '.join(str(number) for number in (*self.shape, self.itemsize))}"


@attrs.frozen(kw_only=True)
class Terms:
    """On whose terms a cache is kept: the dtypes, the rank, and how many of each part.

    `num_index_keys` index keys stand beside an entry that has them (HiSparse: the host's too), and
    an entry keeps `copies` of all values (those of a draft that is not split over ranks).
    """

    dtype: KvDtype
    model_dtype: str
    parallel: Parallel
    num_index_keys: int = 1
    copies: int = 1


Parts = tuple[CellPart, ...]
Inputs = dict[str, Value]


def parts_of(cache: LayerCache, terms: Terms) -> tuple[Parts, Inputs]:
    """The parts of one entry of this cache, and the inputs of their sizes by name."""
    match cache:
        case FullAttention() | SlidingWindow():
            return _keys_and_values(cache, terms)
        case SparseIndexed():
            parts, inputs = _keys_and_values(cache, terms)
            index = _plain("index_k", (*_repeat(terms), cache.index_head_dim), terms.model_dtype)
            return (*parts, index), {**inputs, "index_head_dim": cache.index_head_dim}
        case Latent():
            return _latent(cache, terms), _sizes(cache, terms)
        case LatentIndexed():
            return _indexed_latent(cache, terms), _sizes(cache, terms)
        case SharedWindow() | Compressed():
            return _shared(cache, terms), _sizes(cache, terms)
        case CompressorState():
            part = _plain("inputs", (cache.num_tokens, 2, cache.dim), cache.dtype)
            return (part,), attrs.asdict(cache)
        case RecurrentState():
            return _recurrent(cache, terms)


def _sizes(cache: LayerCache, terms: Terms) -> Inputs:
    sizes = {name: value for name, value in attrs.asdict(cache).items() if value is not None}
    if terms.num_index_keys > 1:
        sizes["index keys an entry"] = terms.num_index_keys
    return {**sizes, "dtype": terms.dtype.name}


def _keys_and_values(
    cache: FullAttention | SlidingWindow | SparseIndexed, terms: Terms
) -> tuple[Parts, Inputs]:
    shards = terms.parallel.head_shards
    heads = heads_on_rank("KV heads", cache.num_kv_heads, shards)
    inputs: Inputs = {
        "num_kv_heads": cache.num_kv_heads,
        "parts that heads are split into": shards,
        "KV heads on this rank": heads,
        "k_dim": cache.k_dim,
        "v_dim": cache.v_dim,
        "dtype": terms.dtype.name,
    }
    lead = (*_repeat(terms), heads)
    parts = (
        *_values("k", lead, cache.k_dim, terms.dtype),
        *_values("v", lead, cache.v_dim, terms.dtype),
    )
    return parts, inputs


def _repeat(terms: Terms) -> tuple[int, ...]:
    return (terms.copies,) if terms.copies > 1 else ()


def _values(name: str, lead: tuple[int, ...], dim: int, dtype: KvDtype) -> Parts:
    """`dim` values in this dtype, and the scales that stand beside them."""
    scales = dtype.scale_layout
    if scales is None:
        per_byte = max(1, 8 // dtype.bits)
        _whole_blocks(name, dim, per_byte, dtype)
        itemsize = max(1, dtype.bits // 8)
        shape = (*lead, dim // per_byte)
        return (CellPart(name=name, shape=shape, dtype=dtype.storage, itemsize=itemsize),)
    _whole_blocks(name, dim, scales.block_len, dtype)
    values = attrs.evolve(dtype, scale_layout=None)
    beside = CellPart(
        name=f"{name}_scale",
        shape=(*lead, dim // scales.block_len),
        dtype=scales.scale_dtype,
        itemsize=scales.scale_bytes,
    )
    return (*_values(name, lead, dim, values), beside)


def _whole_blocks(name: str, dim: int, block_len: int, dtype: KvDtype) -> None:
    if dim % block_len:
        raise ConfigError(
            f"{dtype.name} keeps blocks of {block_len} values, and {name} has {dim} a head:"
            " choose a dtype without blocks, as fp8_e4m3 or bf16"
        )


def _plain(name: str, shape: tuple[int, ...], dtype: str) -> CellPart:
    known = named_dtype(dtype)
    itemsize = max(1, known.bits // 8)
    return CellPart(name=name, shape=shape, dtype=known.storage, itemsize=itemsize)


def _latent(cache: Latent, terms: Terms) -> Parts:
    lead = _repeat(terms)
    rope = _values("rope", lead, cache.rope_dim, terms.dtype) if cache.rope_dim else ()
    return (*_values("latent", lead, cache.kv_lora_rank, terms.dtype), *rope)


def _indexed_latent(cache: LatentIndexed, terms: Terms) -> Parts:
    lead = _repeat(terms)
    index = _index_key(cache.index_head_dim, terms)
    if terms.dtype.bits >= 16:
        values = Latent(kv_lora_rank=cache.kv_lora_rank, rope_dim=cache.rope_dim)
        return (*_latent(values, terms), *index)
    _only_fp8("a latent with index keys", terms.dtype)
    _whole_tiles("kv_lora_rank", cache.kv_lora_rank, LATENT_TILE)
    rope = (_plain("rope", (*lead, cache.rope_dim), ROPE_DTYPE),) if cache.rope_dim else ()
    return (
        *_values("latent", lead, cache.kv_lora_rank, terms.dtype),
        _plain("latent_scale", (*lead, cache.kv_lora_rank // LATENT_TILE), "float32"),
        *rope,
        *index,
    )


def _shared(cache: SharedWindow | Compressed, terms: Terms) -> Parts:
    lead = _repeat(terms)
    index_dim = cache.index_head_dim if isinstance(cache, Compressed) else None
    index = () if index_dim is None else _index_key(index_dim, terms)
    if terms.dtype.bits >= 16:
        return (*_values("kv", lead, cache.dim, terms.dtype), *index)
    _only_fp8("a vector that is key and value at once", terms.dtype)
    plain_dim = cache.dim - cache.rope_dim
    _whole_tiles("dim - rope_dim", plain_dim, SHARED_TILE)
    scales = -(-(plain_dim // SHARED_TILE) // SHARED_SCALES_ALIGNMENT) * SHARED_SCALES_ALIGNMENT
    rope = (_plain("rope", (*lead, cache.rope_dim), ROPE_DTYPE),) if cache.rope_dim else ()
    return (
        *_values("kv", lead, plain_dim, terms.dtype),
        _plain("kv_scale", (*lead, scales), "float8_e8m0fnu"),
        *rope,
        *index,
    )


def _index_key(dim: int, terms: Terms) -> Parts:
    num = terms.num_index_keys * terms.copies
    lead = (num,) if num > 1 else ()
    scales = -(-dim // INDEX_TILE)
    return (
        _plain("index_k", (*lead, dim), "float8_e4m3fn"),
        _plain("index_scale", (*lead, scales), "float32"),
    )


def _only_fp8(what: str, dtype: KvDtype) -> None:
    if dtype.name != "fp8_e4m3":
        raise ConfigError(
            f"{what} is kept in fp8_e4m3, or in 16 or 32 bits, and not in {dtype.name}"
        )


def _whole_tiles(name: str, dim: int, tile: int) -> None:
    if dim % tile:
        raise ConfigError(
            f"fp8 has a scale for each {tile} values, which {name} {dim} is not a multiple of:"
            " choose bf16"
        )


def _recurrent(cache: RecurrentState, terms: Terms) -> tuple[Parts, Inputs]:
    shards = terms.parallel.attention_tp
    inputs: Inputs = {"parts that heads are split into": shards}
    channels = 0
    for idx, heads in enumerate(cache.conv):
        on_rank = heads_on_rank("heads of a convolution", heads.num, shards)
        channels += on_rank * heads.dim
        inputs[f"convolution {idx}"] = f"{heads.num} heads x {heads.dim}, {on_rank} on this rank"
    parts: Parts = ()
    if cache.conv_kernel > 1 and channels:
        inputs["conv_kernel"] = cache.conv_kernel
        parts = (_plain("conv", (cache.conv_kernel - 1, channels), terms.model_dtype),)
    if cache.state is None:
        return parts, inputs
    on_rank = heads_on_rank("heads of a recurrent state", cache.state.num, shards)
    inputs["state"] = f"{cache.state.num} heads x {cache.state.dim}, {on_rank} on this rank"
    state = _plain("state", (on_rank, cache.state.dim), cache.state_dtype)
    return (*parts, state), inputs
