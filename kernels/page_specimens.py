"""For specimens: the ways in which a kernel on whole pages is launched, to be compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton.language as tl

from kvlife.kernels.compiling import Specimen

_TAIL = {
    "num_pages": "i32",
    "table": "*i64",
    "num_tiles": "i32",
    "blocks": "i32",
    "count": "*i32",
    "entries": "*i64",
    "capacity": "i32",
    "seq": "i64",
    "group": "i32",
}
# The own arguments of what moves pages to staging and back.
STAGED = {
    "arena": "*u8",
    "pages": "*i32",
    "pages_stride": "i32",
    "staging": "*u8",
    "rows": "*i32",
    "rows_stride": "i32",
    "num_rows": "i32",
    "row_words": "i64",
}
_SILENT: Mapping[str, object] = {"count": None, "entries": None}


def page_specimens(
    kernel: Any,  # Any: triton has no types
    own: Mapping[str, str],
    *,
    absent: Mapping[str, object] | None = None,
    parts: bool = False,
    ways: tuple[str, ...] = ("load", "store"),
    **constexprs: object,
) -> tuple[Specimen, ...]:
    """Words of 16, 8 and 1 bytes, wide and narrow tiles, with and without a buffer to report to.

    `own` is the signature of the kernel's own arguments; those in `absent` are None in one of the
    specimens. With `parts` the kernel puts words of 8 bytes together. `constexprs` are the kernel's
    own.
    """
    shapes = [
        (16, 1, 2048, {}),
        (16, 8, 256, {}),
        (16, 1, 2048, {**_SILENT, **(absent or {})}),
        (8, 2, 1024, {}),
        (1, 1, 2048, {}),
    ]
    return tuple(
        _specimen(kernel, own, word_bytes, rows, cols, nothing, constexprs, parts=parts, ways=ways)
        for word_bytes, rows, cols, nothing in shapes
    )


def _specimen(
    kernel: Any,  # Any: triton has no types
    own: Mapping[str, str],
    word_bytes: int,
    rows: int,
    cols: int,
    nothing: Mapping[str, object],
    constexprs: Mapping[str, object],
    *,
    parts: bool,
    ways: tuple[str, ...],
) -> Specimen:
    types = {name: kind for name, kind in {**own, **_TAIL}.items() if name not in nothing}
    element = {1: tl.uint8, 8: tl.uint64, 16: tl.uint64}[word_bytes]
    shape = {"ELEMENT": element, "WORD": max(word_bytes // 8, 1), "ROWS": rows, "COLS": cols}
    if parts:
        shape["PARTS"] = max(8 // word_bytes, 1)
    return Specimen(
        name=f"words of {word_bytes}, {rows} x {cols}{', silent' if nothing else ''}",
        kernel=kernel,
        signature=types,
        constexprs={**nothing, **constexprs, **shape},
        aligned=tuple(name for name, kind in types.items() if kind.startswith("*")),
        widest=16 if word_bytes == 16 else None,
        ways=ways,
    )
