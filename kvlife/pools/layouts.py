"""How the KV of a cache group lies in memory: a token's rows, their order, dtype and bytes.

    multi-head   plane k: | token: head 0, head 1, ... |   plane v: likewise, of a width of its own
    latent       plane latent: | token: latent part, rope part |

Dtypes with block scales have a plane of scales beside each plane of values, one byte a block, in
the order of the values. In order "layer" a plane is [layer, page, token], in order "page" it is
[page, layer, token]; both take the same bytes. A plane begins at a multiple of 256 bytes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import attrs

from kvlife.errors import ConfigError
from kvlife.kernels.dispatch import KernelError
from kvlife.kernels.kv_target import KvPart, KvTarget, RowPlace, checked_scale
from kvlife.kernels.numerics import StorageFormat, storage_format
from kvlife.kernels.planes import Plane, Planes

ALIGNMENT = 256
ORDERS = ("layer", "page")
MAX_PAGE_SIZE = 256
MAX_SLOTS = (1 << 31) - 2
MAX_LAYERS = 1 << 12
MAX_WIDTH = 1 << 20

Scale = float | tuple[float, ...]


@attrs.frozen
class RowPart:
    """One of the two tensors that a token's KV comes in; `shape` is (heads, width) or (width,)."""

    name: str
    shape: tuple[int, ...]
    scale: Scale

    @property
    def width(self) -> int:
        """Values per token."""
        return math.prod(self.shape)


def _to_scale(scale: float | Sequence[float]) -> Scale:
    return tuple(scale) if isinstance(scale, Sequence) else scale


@attrs.frozen(kw_only=True)
class KvLayout(ABC):
    """What all layouts share; make a `MultiHead` or a `Latent`.

    `dtype` is one of bf16, fp16, fp32, fp8_e4m3, fp8_e5m2, mxfp8 and nvfp4; `order` is "layer" or
    "page". A tensor's scale is one number, or one for each layer, and only for fp8 and nvfp4.
    Raises `ConfigError` for what cannot be laid out.
    """

    num_layers: int
    dtype: str = "bf16"
    order: str = "layer"

    def __attrs_post_init__(self) -> None:
        """Refuse what cannot be laid out."""
        _check_whole("num_layers", self.num_layers, MAX_LAYERS)
        if self.order not in ORDERS:
            raise ConfigError(f"order is {' or '.join(ORDERS)}, got {self.order!r}")
        for name, value in self._sizes().items():
            _check_whole(name, value, MAX_WIDTH)
        try:
            storage = storage_format(self.dtype)
            for part in self._parts():
                storage.check_width(part.shape[-1])
                self._scales_of(part)
        except KernelError as error:
            raise ConfigError(f"{type(self).__name__}: {error}") from error

    @abstractmethod
    def _sizes(self) -> dict[str, int]:
        """The sizes that a layout was given, by name."""

    @abstractmethod
    def _rows(self) -> dict[str, tuple[RowPart, ...]]:
        """For each plane of values, by name, the parts of a token's row in it."""

    def _parts(self) -> list[RowPart]:
        return [part for parts in self._rows().values() for part in parts]

    def _scales_of(self, part: RowPart) -> tuple[float, ...]:
        given = part.scale if isinstance(part.scale, tuple) else (part.scale,) * self.num_layers
        if len(given) != self.num_layers:
            raise ConfigError(
                f"{len(given)} scales given for {part.name} of {self.num_layers} layers; give one"
                " for each layer, or one number for all"
            )
        scales = tuple(checked_scale(scale) for scale in given)
        if not self.storage.tensor_scale and any(scale != 1.0 for scale in scales):
            raise ConfigError(
                f"dtype {self.dtype} takes no scale for the whole tensor, and {part.name} was given"
                f" {part.scale!r}; leave it at 1.0, or take fp8_e4m3, fp8_e5m2 or nvfp4"
            )
        return scales

    @property
    def storage(self) -> StorageFormat:
        """The storage format that `dtype` names."""
        return storage_format(self.dtype)

    @property
    def token_bytes(self) -> int:
        """Bytes of one token in all layers, scales included."""
        storage = self.storage
        each = (storage.value_bytes(p.width) + storage.scale_bytes(p.width) for p in self._parts())
        return self.num_layers * sum(each)

    def page_bytes(self, page_size: int) -> int:
        """Bytes of one page in all layers, scales included; there is no padding in a page."""
        _check_whole("page_size", page_size, MAX_PAGE_SIZE)
        return page_size * self.token_bytes

    def num_bytes(self, page_size: int, num_pages: int) -> int:
        """Bytes of the arena: all pages, and less than 256 of padding before each later plane."""
        return self.planes(page_size, num_pages).num_bytes

    def planes(self, page_size: int, num_pages: int) -> Planes:
        """Where everything lies in an arena of `num_pages` pages, the reserved page 0 included."""
        planes = tuple(self._lay_out(page_size, num_pages).values())
        return Planes(planes=planes, num_pages=num_pages)

    def target(self, page_size: int, num_pages: int) -> KvTarget:
        """What `store_kv` and `load_kv` need to know of such an arena."""
        planes = self._lay_out(page_size, num_pages)
        storage = self.storage
        parts: list[KvPart] = []
        for name, row in self._rows().items():
            at = 0
            for part in row:
                values, scales = planes[name], planes.get(_scales(name))
                parts.append(
                    KvPart(
                        name=part.name,
                        shape=part.shape,
                        values=_place(values, page_size, at, part.width, storage.value_bytes),
                        scales=_place(scales, page_size, at, part.width, storage.scale_bytes)
                        if scales
                        else None,
                        tensor_scales=self._scales_of(part),
                    )
                )
                at += part.width
        first, second = parts
        return KvTarget(
            storage=storage,
            page_size=page_size,
            num_pages=num_pages,
            num_layers=self.num_layers,
            parts=(first, second),
        )

    def token_shapes(self) -> dict[str, tuple[int, ...]]:
        """For each plane, the shape of a token in it: of values, or of scales of blocks."""
        shapes = {
            name: row[0].shape if len(row) == 1 else (sum(part.width for part in row),)
            for name, row in self._rows().items()
        }
        block = self.storage.block
        if block is not None:
            scales = {_scales(name): (*s[:-1], s[-1] // block) for name, s in shapes.items()}
            shapes |= scales
        return shapes

    def _row_bytes(self) -> dict[str, int]:
        """For each plane, its bytes per token: the planes of values first, then those of scales."""
        storage = self.storage
        widths = {name: sum(p.width for p in row) for name, row in self._rows().items()}
        rows = {name: storage.value_bytes(width) for name, width in widths.items()}
        if storage.block is not None:
            rows |= {_scales(name): storage.scale_bytes(w) for name, w in widths.items()}
        return rows

    def _lay_out(self, page_size: int, num_pages: int) -> dict[str, Plane]:
        _check_whole("page_size", page_size, MAX_PAGE_SIZE)
        _check_whole("num_pages", num_pages, MAX_SLOTS)
        _check_whole("slots (num_pages times page_size)", num_pages * page_size, MAX_SLOTS)
        planes: dict[str, Plane] = {}
        offset = 0
        for name, row_bytes in self._row_bytes().items():
            page_bytes = page_size * row_bytes
            by_layer = self.order == "layer"
            planes[name] = Plane(
                name=name,
                offset=offset,
                num_layers=self.num_layers,
                layer_stride=page_bytes * (num_pages if by_layer else 1),
                page_stride=page_bytes * (1 if by_layer else self.num_layers),
                page_bytes=page_bytes,
            )
            offset += -(-page_bytes * self.num_layers * num_pages // ALIGNMENT) * ALIGNMENT
        return planes


def _scales(plane: str) -> str:
    return f"{plane}_scales"


def _place(
    plane: Plane, page_size: int, at: int, width: int, bytes_of: Callable[[int], int]
) -> RowPlace:
    return RowPlace(
        plane=plane,
        row_bytes=plane.page_bytes // page_size,
        first_byte=bytes_of(at) if at else 0,
        num_bytes=bytes_of(width),
    )


@attrs.frozen(kw_only=True)
class MultiHead(KvLayout):
    """Multi-head and grouped-query attention: K and V of `num_kv_heads` heads, in planes k and v.

    `v_dim` is `k_dim` where not given.
    """

    num_kv_heads: int
    k_dim: int
    v_dim: int | None = None
    k_scale: Scale = attrs.field(default=1.0, converter=_to_scale)
    v_scale: Scale = attrs.field(default=1.0, converter=_to_scale)

    def _sizes(self) -> dict[str, int]:
        v_dim = self.k_dim if self.v_dim is None else self.v_dim
        return {"num_kv_heads": self.num_kv_heads, "k_dim": self.k_dim, "v_dim": v_dim}

    def _rows(self) -> dict[str, tuple[RowPart, ...]]:
        heads, k_dim, v_dim = self._sizes().values()
        return {
            "k": (RowPart("k", (heads, k_dim), self.k_scale),),
            "v": (RowPart("v", (heads, v_dim), self.v_scale),),
        }


@attrs.frozen(kw_only=True)
class Latent(KvLayout):
    """Latent attention (MLA): one row, the latent part and then the rope part, in plane latent.

    The latent part goes where K goes elsewhere, the rope part where V goes. Both have one scale.
    """

    latent_dim: int
    rope_dim: int
    scale: Scale = attrs.field(default=1.0, converter=_to_scale)

    def _sizes(self) -> dict[str, int]:
        return {"latent_dim": self.latent_dim, "rope_dim": self.rope_dim}

    def _rows(self) -> dict[str, tuple[RowPart, ...]]:
        latent = RowPart("latent", (self.latent_dim,), self.scale)
        return {"latent": (latent, RowPart("rope", (self.rope_dim,), self.scale))}


def _check_whole(name: str, value: object, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= high:
        raise ConfigError(f"{name} must be a whole number in [1, {high}], got {value!r}")
