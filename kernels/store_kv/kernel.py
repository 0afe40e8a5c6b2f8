"""`store_kv` in Triton: K and V in one launch."""

import triton
import triton.language as tl
from torch import Tensor

from kvlife.kernels.kv_kernel import (
    copies,
    num_blocks,
    quantised,
    report_outside,
    tokens_of,
    word,
    words_in,
)
from kvlife.kernels.kv_launch import CHANGING, launch_on_tokens, strides_of
from kvlife.kernels.kv_target import KvTarget
from kvlife.kernels.numerics import COMPUTE_FORMATS
from kvlife.kernels.numerics.kernel import widen
from kvlife.kernels.numerics.reference import fp32
from kvlife.kernels.violations import Violations


@triton.jit
def store_tile(
    arena,
    token,
    inside,
    page,
    place,
    block,
    source,
    strides,
    bases,
    inverse,
    SOURCE: tl.constexpr,
    STORAGE: tl.constexpr,
    HEAD: tl.constexpr,
    PART: tl.constexpr,
):
    """Load a tile of a part, narrow it, store it. HEAD is 0 where a token's values lie in a row."""
    WIDTH: tl.constexpr = PART[0]
    COLS: tl.constexpr = PART[1]
    col = block * COLS + tl.arange(0, COLS)
    at = col
    if HEAD:
        at = (col // HEAD).to(tl.int64) * strides[1] + (col % HEAD).to(tl.int64) * strides[2]
    words = source.to(tl.pointer_type(word(SOURCE))) + (token * strides[0])[:, None] + at[None, :]
    words = tl.load(words, mask=inside[:, None] & (col < WIDTH)[None, :], other=0)
    if copies(STORAGE, SOURCE):
        codes = words
    else:
        values = widen(words.to(tl.int32), SOURCE)
        codes, scales = quantised(values, inverse, STORAGE)
    start = bases[0] + page * PART[3] + place * PART[2]
    PACKED: tl.constexpr = COLS // codes.shape[1]
    spot = block * (COLS // PACKED) + tl.arange(0, COLS // PACKED)
    target = arena.to(words_in(STORAGE)) + start[:, None] + spot[None, :]
    tl.store(target, codes, mask=inside[:, None] & (spot < WIDTH // PACKED)[None, :])
    if PART[4]:
        GROUPS: tl.constexpr = scales.shape[1]
        start = bases[1] + page * PART[5] + place * PART[4]
        spot = block * GROUPS + tl.arange(0, GROUPS)
        target = arena + start[:, None] + spot[None, :]
        held = inside[:, None] & (spot < WIDTH // (COLS // GROUPS))[None, :]
        tl.store(target, scales.to(tl.uint8), mask=held)


@triton.jit(do_not_specialize=CHANGING)
def store_kv_kernel(
    arena,
    slots,
    slot_stride,
    num,
    num_slots,
    k,
    k_row_stride,
    k_head_stride,
    k_item_stride,
    k_base,
    k_scale_base,
    k_inverse,
    v,
    v_row_stride,
    v_head_stride,
    v_item_stride,
    v_base,
    v_scale_base,
    v_inverse,
    count,
    entries,
    capacity,
    seq,
    group,
    SOURCE: tl.constexpr,
    STORAGE: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    TOKENS: tl.constexpr,
    K_HEAD: tl.constexpr,
    V_HEAD: tl.constexpr,
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
        strides = (k_row_stride, k_head_stride, k_item_stride)
        bases = (k_base, k_scale_base)
        store_tile(
            arena, token, inside, page, place, block, k, strides, bases, k_inverse,
            SOURCE, STORAGE, K_HEAD, K,
        )  # fmt: skip
    else:
        strides = (v_row_stride, v_head_stride, v_item_stride)
        bases = (v_base, v_scale_base)
        block -= num_blocks(K)
        store_tile(
            arena, token, inside, page, place, block, v, strides, bases, v_inverse,
            SOURCE, STORAGE, V_HEAD, V,
        )  # fmt: skip


def store_kv_triton(
    arena: Tensor,
    target: KvTarget,
    layer: int,
    rows: tuple[Tensor, Tensor],
    slots: Tensor,
    violations: Violations | None,
    *,
    seq: int,
    group: int,
) -> None:
    """Store as the contract says, in one launch."""
    places: list[object] = []
    heads: list[int] = []
    for part, row in zip(target.parts, rows, strict=True):
        strides, head = strides_of(row)
        heads.append(head)
        inverse = fp32(1.0 / part.tensor_scales[layer])
        places += [row, *strides, *part.bases(layer, target.storage), inverse]
    launch_on_tokens(
        store_kv_kernel,
        (arena, slots, slots.stride(0), slots.numel(), target.num_slots, *places),
        target,
        violations,
        seq=seq,
        group=group,
        SOURCE=COMPUTE_FORMATS[rows[0].dtype],
        K_HEAD=heads[0],
        V_HEAD=heads[1],
    )
