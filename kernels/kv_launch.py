"""For launches of the kernels of tokens' KV: tiles, strides, and what both kernels take."""

from __future__ import annotations

import functools
from typing import Any

import triton
from torch import Tensor

from kvlife.kernels.checking import refuse
from kvlife.kernels.dispatch import run_kernel
from kvlife.kernels.kv_target import KvPart, KvTarget
from kvlife.kernels.numerics import StorageFormat
from kvlife.kernels.violations import Violations

MAX_PROGRAMS = 2**31 - 1
TILE_VALUES = 4096
MAX_COLS = 1024
# Arguments whose values change from call to call: a kernel is not compiled anew for each kind.
CHANGING = ["num", "num_slots", "capacity", "seq", "group"]


def part_constants(part: KvPart, storage: StorageFormat) -> tuple[int, ...]:
    """Width, columns of a tile, row and page stride in words, and those of scales."""
    size = storage.word_bytes
    place, scales = part.values, part.scales
    return (
        part.width,
        min(triton.next_power_of_2(part.width), MAX_COLS),
        place.row_bytes // size,
        place.plane.page_stride // size,
        scales.row_bytes if scales else 0,
        scales.plane.page_stride if scales else 0,
    )


def tokens_per_tile(k: tuple[int, ...], v: tuple[int, ...], tile: int = TILE_VALUES) -> int:
    """Tokens of a tile, such that the wider part's tile has about `tile` values."""
    return max(tile // max(k[1], v[1]), 1)


def strides_of(rows: Tensor) -> tuple[tuple[int, int, int], int]:
    """Strides of [n, heads, width] or [n, width], and the head's width: 0 where rows lie whole."""
    if rows.ndim == 2:
        rows = rows[:, None]
    row, head, item = rows.stride()
    heads, width = rows.shape[1:]
    whole = (width == 1 or item == 1) and (heads == 1 or head == width)
    return (row, head, item), 0 if whole else width


@functools.lru_cache(maxsize=256)
def _tiling(target: KvTarget, tile: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    k, v = (part_constants(part, target.storage) for part in target.parts)
    return k, v, tokens_per_tile(k, v, tile)


def launch_on_tokens(
    kernel: Any,  # Any: triton has no types
    arguments: tuple[object, ...],
    target: KvTarget,
    violations: Violations | None,
    *,
    seq: int,
    group: int,
    **constexprs: object,
) -> None:
    """Run a kernel over tiles of tokens; `arguments` begin with arena, slots, stride, number."""
    arena, *others = arguments
    num = others[2]
    assert isinstance(arena, Tensor)
    assert isinstance(num, int)
    k, v, tokens = _tiling(target, TILE_VALUES)
    programs = -(-num // tokens) * sum(-(-part[0] // part[1]) for part in (k, v))
    if programs > MAX_PROGRAMS:
        case = f"they take {programs} programs, and a grid holds {MAX_PROGRAMS}"
        refuse(kernel.__name__, f"{num} tokens in one call", case, "name fewer in a call")
    found = (None, None, 0)
    if violations is not None:
        found = (violations.count, violations.entries, violations.capacity)
    run_kernel(
        kernel,
        (programs,),
        arena,
        *others,
        *found,
        seq,
        group,
        STORAGE=target.storage,
        PAGE_SIZE=target.page_size,
        TOKENS=tokens,
        K=k,
        V=v,
        enable_fp_fusion=False,
        **constexprs,
    )
