"""What the specimens of the paging operations have in common."""

from __future__ import annotations

from typing import Any

from kvlife.kernels.compiling import Specimen

# Scalars that a launch may find to be of either size: the wider one is compiled.
TYPES = {
    "table": "*i32",
    "tables": "*i32",
    "groups": "*i64",
    "state": "*i32",
    "refs": "*i32",
    "pins": "*i32",
    "counts": "*i32",
    "allocated": "*i32",
    "floor": "*i32",
    "cursors": "*i32",
    "at": "*i64",
    "pages": "*i32",
    "own": "*i32",
    "canonical": "*i32",
    "freed": "*i32",
    "rows": "*i64",
    "low": "*i64",
    "high": "*i64",
    "lens": "*i64",
    "offsets": "*i64",
    "slots": "*i32",
    "out": "*i32",
    "new_pages": "*i32",
    "slots_out": "*i32",
    "count": "*i32",
    "entries": "*i64",
    "seq_at": "*i64",
    "table_len": "i64",
    "tables_len": "i64",
    "total": "i64",
    "pages_group_stride": "i64",
    "slots_group_stride": "i64",
    "group": "i64",
    "seq": "i64",
}


def specimens_by_stride(
    kernel: Any,  # Any: triton has no types
    strides: tuple[str, ...],
    *,
    name: str | None = None,
    aligned: tuple[str, ...] = (),
    wide: tuple[str, ...] = (),
    num_warps: int = 4,
    **constexprs: object,
) -> tuple[Specimen, Specimen]:
    """A kernel whose inputs lie side by side, and one whose inputs have strides.

    The first has aligned pointers, and other `aligned` arguments; where it is `wide` (load, store)
    it must show accesses of 16 bytes.
    """
    name = name or kernel.__name__.removesuffix("_kernel")
    arguments = [one for one in kernel.arg_names if one not in constexprs]
    signature = {one: TYPES.get(one, "i32") for one in arguments}
    pointers = tuple(one for one in arguments if signature[one].startswith("*"))
    packed = {**constexprs, **dict.fromkeys(strides, 1)}
    return (
        Specimen(
            name=name,
            kernel=kernel,
            signature={one: kind for one, kind in signature.items() if one not in packed},
            constexprs=packed,
            aligned=(*pointers, *aligned),
            num_warps=num_warps,
            widest=16 if wide else None,
            ways=wide,
        ),
        Specimen(
            name=f"{name}, strided",
            kernel=kernel,
            signature=signature,
            constexprs=constexprs,
            num_warps=num_warps,
        ),
    )
