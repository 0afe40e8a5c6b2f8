"""For the Triton kernels of tokens' KV: where a token's row lies, and its values in and out.

A tile is [TOKENS, COLS] values of one part. A word is the bits of one value (int16, int32) or a
byte (uint8, for fp8 and packed e2m1); places and strides in the arena are in words.
"""

import triton
import triton.language as tl

from kvlife.kernels.numerics.formats import E4M3
from kvlife.kernels.numerics.kernel import (
    field,
    fp4_scales,
    mx_factor,
    mx_scales,
    narrow,
    widen,
)
from kvlife.kernels.violations import ViolationCode
from kvlife.kernels.violations_kernel import report

_E4M3 = tl.constexpr(E4M3)
OUTSIDE = tl.constexpr(int(ViolationCode.OUTSIDE))


@triton.constexpr_function
def copies(storage, values):
    """Whether a `StorageFormat` takes values of a `FloatFormat` as they come."""
    return storage.copies(values)


@triton.constexpr_function
def word(values):
    """The word that values of a `FloatFormat` are read and written in."""
    return {4: tl.uint8, 8: tl.uint8, 16: tl.int16, 32: tl.int32}[values.bits]


@triton.constexpr_function
def words_in(storage):
    """What to see an arena as, to read and write values of a `StorageFormat`."""
    return tl.pointer_type({1: tl.uint8, 2: tl.int16, 4: tl.int32}[storage.word_bytes])


@triton.jit
def tokens_of(
    slots, slot_stride, num, num_slots, block, PAGE_SIZE: tl.constexpr, TOKENS: tl.constexpr
):
    """Of a block of tokens: index, slot, whether there, whether in the pool, page, place in it."""
    token = block.to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    there = token < num
    slot = tl.load(slots + token * slot_stride, mask=there, other=0).to(tl.int64)
    inside = there & (slot >= 0) & (slot < num_slots)
    # Slots of a pool fit into 31 bits, and dividing those is cheaper.
    short = tl.where(inside, slot, 0).to(tl.int32)
    page = short // PAGE_SIZE
    return token, slot, there, inside, page.to(tl.int64), (short - page * PAGE_SIZE).to(tl.int64)


@triton.constexpr_function
def num_blocks(part):
    """How many tiles cover the width of a part; `part` as `kv_launch.part_constants` gives it."""
    return -(-part[0] // part[1])


@triton.jit
def report_outside(count, entries, capacity, group, seq, slot, amiss):
    """Report the slots where `amiss` holds: they lie outside the pool."""
    page = tl.full(slot.shape, -1, tl.int64)
    report(count, entries, capacity, OUTSIDE, group, page, slot, seq, amiss)


@triton.jit
def quantised(values, inverse, STORAGE: tl.constexpr):
    """Words [TOKENS, COLS] (packed: COLS / 2) of fp32 values, and the codes of block scales."""
    TOKENS: tl.constexpr = values.shape[0]
    COLS: tl.constexpr = values.shape[1]
    FORMAT: tl.constexpr = field(STORAGE, "values")
    SIZE: tl.constexpr = field(STORAGE, "granularity")
    if field(STORAGE, "block_scale") == "e8m0":
        blocks = tl.reshape(values, (TOKENS, COLS // SIZE, SIZE))
        ratio, scales = mx_scales(blocks)
        codes = tl.reshape(narrow(blocks * ratio[:, :, None], FORMAT), (TOKENS, COLS))
    elif field(STORAGE, "block_scale") == "e4m3":
        blocks = tl.reshape(values, (TOKENS, COLS // SIZE, SIZE))
        ratio, scales = fp4_scales(blocks, inverse)
        pairs = tl.reshape(narrow(blocks * ratio[:, :, None], FORMAT), (TOKENS, COLS // 2, 2))
        low, high = tl.split(pairs)
        codes = low | (high << 4)
    else:
        scaled = values * inverse if field(STORAGE, "tensor_scale") else values
        codes = narrow(scaled, FORMAT)
        scales = codes
    return codes.to(word(FORMAT)), scales


@triton.jit
def dequantised(words, scales, scale, STORAGE: tl.constexpr):
    """fp32 values [TOKENS, COLS] of words (packed: COLS / 2) and block scales (int32)."""
    FORMAT: tl.constexpr = field(STORAGE, "values")
    SIZE: tl.constexpr = field(STORAGE, "granularity")
    TOKENS: tl.constexpr = words.shape[0]
    codes = words.to(tl.int32)
    if field(STORAGE, "block_scale") == "e8m0":
        blocks = tl.reshape(widen(codes, FORMAT), (TOKENS, scales.shape[1], SIZE))
        values = tl.reshape(blocks * mx_factor(scales)[:, :, None], words.shape)
    elif field(STORAGE, "block_scale") == "e4m3":
        both = tl.join(codes & 15, codes >> 4)
        blocks = tl.reshape(widen(both, FORMAT), (TOKENS, scales.shape[1], SIZE))
        factor = widen(scales, _E4M3) * scale
        values = tl.reshape(blocks * factor[:, :, None], (TOKENS, 2 * words.shape[1]))
    else:
        values = widen(codes, FORMAT)
        if field(STORAGE, "tensor_scale"):
            values = values * scale
    return values
