"""For specimens: the layouts and dtypes that the kernels of tokens' KV are compiled for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvlife.kernels.compiling import Specimen
from kvlife.kernels.kv_launch import part_constants, tokens_per_tile
from kvlife.kernels.kv_target import KvPart, RowPlace
from kvlife.kernels.numerics import storage_format
from kvlife.kernels.planes import Plane

PAGE_SIZE = 16
# Widths of the two parts, and of the rows that they lie in: 8 heads of 128; 4 heads of 192 and of
# 128; a latent row.
SHAPES = {
    "8 x 128": ((1024, 1024), (1024, 1024)),
    "4 x 192, 128": ((768, 768), (512, 512)),
    "latent 512 + 64": ((512, 576), (64, 576)),
}


def kv_specimen(
    kernel: Any,  # Any: triton has no types
    types: Mapping[str, str],
    storage: str,
    shape: str,
    name: str,
    constexprs: Mapping[str, object],
    widest: int | None,
) -> Specimen:
    """A launch on one of `SHAPES` in a storage format; `constexprs` are the kernel's own."""
    k, v = (_constants(storage, width, row) for width, row in SHAPES[shape])
    shared = {"STORAGE": storage_format(storage), "PAGE_SIZE": PAGE_SIZE, "K": k, "V": v}
    signature = {name: kind for name, kind in types.items() if name not in constexprs}
    return Specimen(
        name=name,
        kernel=kernel,
        signature=signature,
        constexprs={**shared, "TOKENS": tokens_per_tile(k, v), **constexprs},
        aligned=tuple(
            name
            for name, kind in signature.items()
            if kind.startswith("*") or name.endswith(("base", "row_stride", "head_stride"))
        ),
        fp_fusion=False,
        widest=widest,
    )


def _constants(storage: str, width: int, row: int) -> tuple[int, ...]:
    form = storage_format(storage)
    part = KvPart(
        name="part",
        shape=(width,),
        values=_place(form.value_bytes(row), form.value_bytes(width)),
        scales=_place(form.scale_bytes(row), form.scale_bytes(width)) if form.block else None,
        tensor_scales=(1.0,),
    )
    return part_constants(part, form)


def _place(row_bytes: int, num_bytes: int) -> RowPlace:
    page_bytes = PAGE_SIZE * row_bytes
    plane = Plane(
        name="plane",
        offset=0,
        num_layers=1,
        layer_stride=page_bytes,
        page_stride=page_bytes,
        page_bytes=page_bytes,
    )
    return RowPlace(plane=plane, row_bytes=row_bytes, first_byte=0, num_bytes=num_bytes)
