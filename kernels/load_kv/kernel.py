"""`load_kv` in Triton: K and V in one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvlife.kernels.kv_kernel import (
    copies,
    dequantised,
    num_blocks,
    report_outside,
    tokens_of,
    word,
    words_in,
)
from kvlife.kernels.kv_launch import CHANGING, launch_on_tokens
from kvlife.kernels.kv_target import KvTarget
from kvlife.kernels.numerics import COMPUTE_FORMATS
from kvlife.kernels.numerics.kernel import field, narrow
from kvlife.kernels.violations import Violations


@triton.jit
def load_tile(
    arena,
    token,
    there,
    inside,
    page,
    place,
    block,
    target,
    bases,
    scale,
    STORAGE: tl.constexpr,
    TARGET: tl.constexpr,
    PART: tl.constexpr,
):
    """Load a tile of a part, widen it, and store it in the compute dtype."""
    WIDTH: tl.constexpr = PART[0]
    COLS: tl.constexpr = PART[1]
    PACKED: tl.constexpr = 8 // field(field(STORAGE, "values"), "bits") or 1
    start = bases[0] + page * PART[3] + place * PART[2]
    spot = block * (COLS // PACKED) + tl.arange(0, COLS // PACKED)
    words = arena.to(words_in(STORAGE)) + start[:, None] + spot[None, :]
    held = inside[:, None] & (spot < WIDTH // PACKED)[None, :]
    codes = tl.load(words, mask=held, other=0)
    if not copies(STORAGE, TARGET):
        scales = codes
        if PART[4]:
            SIZE: tl.constexpr = field(STORAGE, "granularity")
            start = bases[1] + page * PART[5] + place * PART[4]
            spot = block * (COLS // SIZE) + tl.arange(0, COLS // SIZE)
            held = inside[:, None] & (spot < WIDTH // SIZE)[None, :]
            scales = tl.load(arena + start[:, None] + spot[None, :], mask=held, other=0)
        values = dequantised(codes, scales.to(tl.int32), scale, STORAGE)
        codes = narrow(values, TARGET).to(word(TARGET))
    col = block * COLS + tl.arange(0, COLS)
    out = target.to(tl.pointer_type(word(TARGET))) + (token * WIDTH)[:, None] + col[None, :]
    tl.store(out, codes, mask=there[:, None] & (col < WIDTH)[None, :])


@triton.jit(do_not_specialize=CHANGING)
def load_kv_kernel(
    arena,
    slots,
    slot_stride,
    num,
    num_slots,
    k,
    k_base,
    k_scale_base,
    k_scale,
    v,
    v_base,
    v_scale_base,
    v_scale,
    count,
    entries,
    capacity,
    seq,
    group,
    TARGET: tl.constexpr,
    STORAGE: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    TOKENS: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
):
    """One program: a tile of K or V. K and V are `part_constants`; without `count`, no report."""
    blocks: tl.constexpr = num_blocks(K) + num_blocks(V)
    block = tl.program_id(0) % blocks
    token, slot, there, inside, page, place = tokens_of(
        slots, slot_stride, num, num_slots, tl.program_id(0) // blocks, PAGE_SIZE, TOKENS
    )
    if count is not None:
        amiss = there & (inside == 0) & (block == 0)
        report_outside(count, entries, capacity, group, seq, slot, amiss)
    if block < num_blocks(K):
        bases = (k_base, k_scale_base)
        load_tile(
            arena, token, there, inside, page, place, block, k, bases, k_scale, STORAGE, TARGET, K
        )
    else:
        bases = (v_base, v_scale_base)
        block -= num_blocks(K)
        load_tile(
            arena, token, there, inside, page, place, block, v, bases, v_scale, STORAGE, TARGET, V
        )


def load_kv_triton(
    arena: Tensor,
    target: KvTarget,
    layer: int,
    slots: Tensor,
    dtype: torch.dtype,
    violations: Violations | None,
    *,
    seq: int,
    group: int,
) -> tuple[Tensor, Tensor]:
    """Load as the contract says, in one launch."""
    places: list[object] = []
    loaded: list[Tensor] = []
    for part in target.parts:
        loaded.append(torch.empty((slots.numel(), *part.shape), dtype=dtype, device=arena.device))
        scale = part.tensor_scales[layer]
        places += [loaded[-1], *part.bases(layer, target.storage), scale]
    launch_on_tokens(
        load_kv_kernel,
        (arena, slots, slots.stride(0), slots.numel(), target.num_slots, *places),
        target,
        violations,
        seq=seq,
        group=group,
        TARGET=COMPUTE_FORMATS[dtype],
    )
    first, second = loaded
    return first, second
