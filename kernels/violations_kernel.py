"""For Triton kernels: how a finding is put into the buffer of `violations.py`."""

import triton
import triton.language as tl


@triton.jit
def report(count, entries, capacity, code, group, page, where, seq, mask):
    """Add a finding for each lane where `mask` holds; beyond the capacity it is counted only.

    `count` and `entries` point at the buffer's tensors, `capacity` is int32. `page` and `where` are
    blocks of `mask`'s shape; `code`, `group` and `seq` are blocks or scalars.
    """
    one = tl.full(mask.shape, 1, tl.int32)
    spot = tl.atomic_add(count + tl.zeros(mask.shape, tl.int32), one, mask=mask, sem="relaxed")
    fits = mask & (spot < capacity)
    row = entries + spot.to(tl.int64) * 5
    tl.store(row, tl.zeros(mask.shape, tl.int64) + code, mask=fits)
    tl.store(row + 1, tl.zeros(mask.shape, tl.int64) + group, mask=fits)
    tl.store(row + 2, page.to(tl.int64), mask=fits)
    tl.store(row + 3, where.to(tl.int64), mask=fits)
    tl.store(row + 4, tl.zeros(mask.shape, tl.int64) + seq, mask=fits)
