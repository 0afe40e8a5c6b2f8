"""Arenas of all layouts and the pages to work on, for the operations on whole pages."""

import numpy as np
import torch
from twice import strided

from kvlife.kernels.numerics import storage_format
from kvlife.kernels.planes import Plane, Planes
from kvlife.pools.layouts import Latent, MultiHead

DTYPES = ("bf16", "fp16", "fp32", "fp8_e4m3", "fp8_e5m2", "mxfp8", "nvfp4")
KINDS = ("heads", "grouped", "latent", "odd")


def layout_of(kind, dtype, order, num_layers=2):
    """A small layout of each kind; odd ones leave words of few bytes."""
    block = storage_format(dtype).block or 1
    both = {"num_layers": num_layers, "dtype": dtype, "order": order}
    match kind:
        case "heads":
            return MultiHead(num_kv_heads=2, k_dim=32, **both)
        case "grouped":
            return MultiHead(num_kv_heads=1, k_dim=64, v_dim=32, **both)
        case "latent":
            return Latent(latent_dim=64, rope_dim=32, **both)
        case "odd":
            return MultiHead(num_kv_heads=1, k_dim=3 * block, v_dim=block, **both)


def planes_of(*page_bytes, num_layers=2, num_pages=6, order="layer", offset=0):
    """Planes of these sections, one behind the other."""
    planes = []
    for size in page_bytes:
        by_layer = order == "layer"
        planes.append(
            Plane(
                name=f"plane {len(planes)}",
                offset=offset,
                num_layers=num_layers,
                layer_stride=size * (num_pages if by_layer else 1),
                page_stride=size * (1 if by_layer else num_layers),
                page_bytes=size,
            )
        )
        offset += size * num_layers * num_pages
    return Planes(planes=planes, num_pages=num_pages)


def section(arena, plane, layer, page):
    """The bytes of a section, by the definition of a plane."""
    start = plane.offset + layer * plane.layer_stride + page * plane.page_stride
    return arena[start : start + plane.page_bytes]


def content(arena, planes, page):
    """The bytes of a page, by the definition of its content."""
    parts = [
        section(arena, plane, layer, page)
        for plane in planes.planes
        for layer in range(plane.num_layers)
    ]
    return torch.cat(parts)


def write_content(arena, planes, page, given):
    """Write the bytes of a page, by the definition of its content."""
    at = 0
    for plane in planes.planes:
        for layer in range(plane.num_layers):
            section(arena, plane, layer, page).copy_(given[at : at + plane.page_bytes])
            at += plane.page_bytes


def random_bytes(rng, *shape):
    """uint8 of this shape."""
    return torch.from_numpy(rng.integers(0, 256, shape, dtype=np.uint8))


class Content:
    """A random arena of a case's layout, and pages in random order, none of them page 0."""

    def __init__(self, case, seed):
        self.rng = np.random.default_rng(seed)
        self.case, self.num = case, case["num"]
        layout = layout_of(case["kind"], case["dtype"], case["order"])
        self.planes = layout.planes(case["page_size"], 2 * self.num + 3)
        self.arena = random_bytes(self.rng, self.planes.num_bytes + 5)
        self.order = 1 + torch.from_numpy(self.rng.permutation(2 * self.num + 2))

    def laid(self, pages):
        """Page ids, some of them padding: int64 with gaps between, or int32."""
        pages = pages.masked_fill(torch.from_numpy(self.rng.random(self.num) < 0.1), 0)
        return strided(pages) if self.case["apart"] else pages.int()

    def distinct(self):
        return self.laid(self.order[: self.num])

    def several(self):
        """Pages that may stand twice, none of them among the `others`."""
        chosen = self.rng.integers(0, max(self.num, 1), self.num)
        return self.laid(self.order[: self.num][chosen])

    def others(self):
        return self.laid(self.order[self.num : 2 * self.num])

    def staging(self):
        """A row for each page; where things stand apart, two rows more, and gaps between rows."""
        if not self.case["apart"]:
            return random_bytes(self.rng, self.num, self.planes.page_bytes), None
        wide = random_bytes(self.rng, self.num + 2, self.planes.page_bytes + 9)
        rows = torch.from_numpy(self.rng.permutation(self.num + 2)[: self.num])
        return wide[:, : self.planes.page_bytes], rows
