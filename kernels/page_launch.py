"""For launches: what every kernel on whole pages takes after its own arguments, in one place."""

from __future__ import annotations

from typing import Any

import triton.language as tl
from torch import Tensor

from kvlife.kernels.checking import refuse
from kvlife.kernels.dispatch import run_kernel
from kvlife.kernels.page_tiles import PageTiles
from kvlife.kernels.planes import Planes
from kvlife.kernels.violations import Violations

MAX_PROGRAMS = 2**31 - 1
# Arguments whose values change from call to call: a kernel is not compiled anew for each kind.
CHANGING = ["num_pages", "num_tiles", "blocks", "capacity", "seq", "group"]

_ELEMENTS = {1: tl.uint8, 2: tl.uint16, 4: tl.uint32, 8: tl.uint64, 16: tl.uint64}


def launch_on_pages(
    kernel: Any,  # Any: triton has no types
    arguments: tuple[object, ...],
    num_entries: int,
    planes: Planes,
    tiles: PageTiles,
    *,
    violations: Violations | None,
    seq: int,
    group: int,
    num_warps: int = 4,
    **constexprs: object,
) -> None:
    """Run a kernel over the tiles of `num_entries` pages; `arguments`, the arena first, lead."""
    arena, *others = arguments
    assert isinstance(arena, Tensor)
    programs = num_entries * tiles.blocks
    if programs > MAX_PROGRAMS:
        case = f"they take {programs} programs, and a grid holds {MAX_PROGRAMS}"
        refuse(kernel.__name__, f"{num_entries} pages in one call", case, "name fewer in a call")
    found = (None, None, 0)
    if violations is not None:
        found = (violations.count, violations.entries, violations.capacity)
    run_kernel(
        kernel,
        (programs,),
        arena,
        *others,
        planes.num_pages,
        tiles.table,
        tiles.num_tiles,
        tiles.blocks,
        *found,
        seq,
        group,
        ELEMENT=_ELEMENTS[tiles.word_bytes],
        WORD=max(tiles.word_bytes // 8, 1),
        ROWS=tiles.rows,
        COLS=tiles.cols,
        num_warps=num_warps,
        **constexprs,
    )
