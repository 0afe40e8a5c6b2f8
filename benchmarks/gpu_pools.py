"""Pools for the checks and measurements of gpu.py: layouts, arenas, page tables, their states.

Needs kvlife.kernels and no other part of kvlife. Everything random comes from a generator.
"""

import attrs
import torch

from kvlife.kernels import PageState, TableGroup, describe
from kvlife.kernels.kv_target import KvPart, KvTarget, RowPlace
from kvlife.kernels.numerics.formats import storage_format
from kvlife.kernels.planes import Plane, Planes

ALIGNMENT = 256


@attrs.frozen(kw_only=True)
class Layout:
    """The KV of a token: `parts` (name and shape) in planes, `order` "layer" or "page"."""

    dtype: str
    parts: tuple[tuple[str, tuple[int, ...]], tuple[str, tuple[int, ...]]]
    together: bool = False
    num_layers: int = 3
    order: str = "layer"
    tensor_scale: float = 1.0

    @property
    def name(self):
        shapes = " + ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in self.parts)
        return f"{self.dtype} {shapes}, {self.num_layers} layers, {self.order} order"

    def _rows(self):
        """For each plane of values, the parts of a token's row in it: name, shape, width."""
        parts = [(name, shape, int(torch.Size(shape).numel())) for name, shape in self.parts]
        return [parts] if self.together else [[part] for part in parts]

    def target(self, page_size, num_pages):
        """Where the KV of each token lies, for `store_kv` and `load_kv`."""
        return self._laid_out(page_size, num_pages)[0]

    def planes(self, page_size, num_pages):
        """Where the bytes of each page lie."""
        return self._laid_out(page_size, num_pages)[1]

    def _laid_out(self, page_size, num_pages):
        storage = storage_format(self.dtype)
        planes, values, scales = [], {}, {}
        for size_of, places in ((storage.value_bytes, values), (storage.scale_bytes, scales)):
            for row in self._rows():
                row_bytes = sum(size_of(width) for _, _, width in row)
                if row_bytes:
                    offset = planes[-1][1] if planes else 0
                    plane, end = self._plane(
                        f"plane {len(planes)}", offset, row_bytes * page_size, num_pages
                    )
                    planes.append((plane, end))
                    first = 0
                    for name, _, width in row:
                        size = size_of(width)
                        places[name] = RowPlace(
                            plane=plane, row_bytes=row_bytes, first_byte=first, num_bytes=size
                        )
                        first += size
        scale = self.tensor_scale if storage.tensor_scale else 1.0
        parts = tuple(
            KvPart(
                name=name,
                shape=shape,
                values=values[name],
                scales=scales.get(name),
                tensor_scales=(scale,) * self.num_layers,
            )
            for name, shape in self.parts
        )
        target = KvTarget(
            storage=storage,
            page_size=page_size,
            num_pages=num_pages,
            num_layers=self.num_layers,
            parts=parts,
        )
        return target, Planes(planes=[plane for plane, _ in planes], num_pages=num_pages)

    def _plane(self, name, offset, page_bytes, num_pages):
        by_layer = self.order == "layer"
        plane = Plane(
            name=name,
            offset=offset,
            num_layers=self.num_layers,
            layer_stride=page_bytes * (num_pages if by_layer else 1),
            page_stride=page_bytes * (1 if by_layer else self.num_layers),
            page_bytes=page_bytes,
        )
        end = offset + page_bytes * num_pages * self.num_layers
        return plane, -(-end // ALIGNMENT) * ALIGNMENT


def multi_head(dtype, heads=8, k_dim=128, v_dim=128, **choices):
    """K and V in planes of their own."""
    return Layout(dtype=dtype, parts=(("k", (heads, k_dim)), ("v", (heads, v_dim))), **choices)


def latent(dtype, width=512, rope=64, **choices):
    """Latent and rope part in one row."""
    return Layout(
        dtype=dtype, parts=(("latent", (width,)), ("rope", (rope,))), together=True, **choices
    )


def random_bytes(num_bytes, generator):
    """uint8 [num_bytes], on the CPU."""
    return torch.randint(0, 256, (num_bytes,), dtype=torch.uint8, generator=generator)


def random_values(shape, dtype, generator):
    """Values of all magnitudes, with zeros, infinities and NaN among them."""
    spread = torch.randint(-12, 12, shape, generator=generator).float().exp2()
    values = torch.randn(shape, generator=generator) * spread
    odd = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 448.0, 1e-40, 3e38])
    chosen = torch.randint(0, 64, shape, generator=generator)
    return torch.where(chosen < odd.numel(), odd[chosen.clamp(max=odd.numel() - 1)], values).to(
        dtype
    )


@attrs.frozen(kw_only=True, eq=False)
class Tables:
    """Page tables and page columns of several groups, as a ledger would leave them: consistent.

    Each row holds `lens` tokens, on PRIVATE pages with one reference; the rest is FREE.
    """

    groups: tuple[TableGroup, ...]
    tables: torch.Tensor
    state: torch.Tensor
    refs: torch.Tensor
    pins: torch.Tensor
    lens: torch.Tensor
    free: tuple[torch.Tensor, ...]

    @classmethod
    def create(cls, num_rows, page_sizes, max_len, room, spare, generator):
        """Rows 1 to `num_rows` of random lengths below `max_len`, each with room for `room` more.

        `spare` pages of each group stay FREE.
        """
        lens = torch.randint(0, max_len, (num_rows + 1,), generator=generator, dtype=torch.int32)
        lens[0] = 0
        groups, tables, columns, free = [], [], [], []
        table_start = page_start = 0
        for page_size in page_sizes:
            width = -(-(max_len + room) // page_size)
            held = (lens + page_size - 1) // page_size
            num_pages = int(held.sum()) + spare + 1
            order = 1 + torch.randperm(num_pages - 1, generator=generator).int()
            table = torch.zeros((num_rows + 1, width), dtype=torch.int32)
            table[torch.arange(width) < held[:, None]] = order[: int(held.sum())]
            state = torch.zeros(num_pages, dtype=torch.int32)
            state[table[table > 0].long()] = int(PageState.PRIVATE)
            state[0] = int(PageState.RESERVED)
            groups.append(
                TableGroup(
                    table_start=table_start,
                    table_width=width,
                    page_size=page_size,
                    page_start=page_start,
                    num_pages=num_pages,
                )
            )
            tables.append(table.flatten())
            columns.append(state)
            free.append(order[int(held.sum()) :])
            table_start, page_start = table_start + table.numel(), page_start + num_pages
        state = torch.cat(columns)
        return cls(
            groups=tuple(groups),
            tables=torch.cat(tables),
            state=state,
            refs=(state == int(PageState.PRIVATE)).int(),
            pins=torch.zeros_like(state),
            lens=lens,
            free=tuple(free),
        )

    def describe(self):
        """The groups as kernels read them, on the CPU."""
        return describe(self.groups, "cpu")

    def steps(self, num_steps):
        """For each decode step of all rows, the new pages: int32 [steps, groups, rows]."""
        rows = torch.arange(1, self.lens.numel())
        pages = torch.zeros((num_steps, len(self.groups), rows.numel()), dtype=torch.int32)
        for idx, group in enumerate(self.groups):
            at = self.lens[1:] + torch.arange(num_steps)[:, None]
            crossing = at % group.page_size == 0
            pages[:, idx][crossing] = self.free[idx][: int(crossing.sum())]
        return pages
