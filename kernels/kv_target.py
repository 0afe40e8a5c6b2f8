"""Where the KV of a token lies in the arena of a cache group, and in which format."""

from __future__ import annotations

import functools
import math

import attrs

from kvlife.kernels.dispatch import KernelError
from kvlife.kernels.numerics.formats import StorageFormat
from kvlife.kernels.numerics.reference import fp32
from kvlife.kernels.planes import Plane


@attrs.frozen(kw_only=True)
class RowPlace:
    """`num_bytes` of each token's row of a plane, from `first_byte` of it on.

    A page's section is its tokens' rows, one after the other, of `row_bytes` each.
    """

    plane: Plane
    row_bytes: int
    first_byte: int
    num_bytes: int

    def base(self, layer: int) -> int:
        """The arena's byte where the part begins in page 0, token 0 of a layer."""
        return self.plane.offset + layer * self.plane.layer_stride + self.first_byte


@attrs.frozen(kw_only=True)
class KvPart:
    """One of the two tensors that a token's KV comes in: K or V, latent or rope part.

    `shape` is a token's: (heads, width) or (width,). `tensor_scales` holds a scale per layer (ones
    where the format takes none).
    """

    name: str
    shape: tuple[int, ...]
    values: RowPlace
    scales: RowPlace | None
    tensor_scales: tuple[float, ...]

    @property
    def width(self) -> int:
        """Values per token."""
        return math.prod(self.shape)

    def bases(self, layer: int, storage: StorageFormat) -> tuple[int, int]:
        """Where a layer's values begin, in words of the format, and its scales, in bytes."""
        scales = 0 if self.scales is None else self.scales.base(layer)
        return self.values.base(layer) // storage.word_bytes, scales


@attrs.frozen(kw_only=True, cache_hash=True)
class KvTarget:
    """The two parts of a token's KV in an arena of `num_pages` pages of `page_size` tokens.

    Token row of slot s, layer l, in part p: byte `p.base(l) + (s // page_size) * page_stride + (s %
    page_size) * row_bytes` of the arena.
    """

    storage: StorageFormat
    page_size: int
    num_pages: int
    num_layers: int
    parts: tuple[KvPart, KvPart]

    @property
    def num_slots(self) -> int:
        """Slots of the pool, those of the reserved page 0 included."""
        return self.num_pages * self.page_size

    @functools.cached_property
    def num_bytes(self) -> int:
        """Bytes that the arena must have at least."""
        places = [place for part in self.parts for place in (part.values, part.scales) if place]
        return max(
            place.plane.offset
            + (self.num_layers - 1) * place.plane.layer_stride
            + (self.num_pages - 1) * place.plane.page_stride
            + place.plane.page_bytes
            for place in places
        )


def checked_scale(scale: object) -> float:
    """The fp32 value of a tensor's scale; raises `KernelError` where it or its inverse is none."""
    if not isinstance(scale, int | float) or not scale > 0:
        raise KernelError(f"a tensor's scale is a number above 0, got {scale!r}")
    if not 2.0**-100 <= scale <= 2.0**100:
        raise KernelError(f"a tensor's scale lies in [2^-100, 2^100], got {scale!r}")
    return fp32(scale)
