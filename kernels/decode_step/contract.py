"""`decode_step`: what it takes and does."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.violations import Violations


def decode_step(
    tables: Tensor,
    groups: Tensor,
    state: Tensor,
    refs: Tensor,
    allocated: Tensor,
    rows: Tensor,
    new_pages: Tensor,
    *,
    slots_out: Tensor,
    violations: Violations,
    seq: Tensor,
) -> None:
    """Each row gains one token, in all groups: lengths, crossed pages, table, states and slots.

    `tables`, `state`, `refs` int32: the arenas of all groups, `groups` as `describe` makes it;
    `allocated` int32 [rows of the pool]. `rows` int32 or int64 [n], none twice; row 0 is padding
    and gets slot 0. `new_pages` int32 [groups, n]: the page for a row that comes to a new page in
    that group, 0 for the others. `slots_out` int32 [groups, n] gets the slot of the new token.
    `seq` int64 [1] lies on the device, so that a CUDA graph can be replayed under another.

    One launch without allocation or synchronisation. Finds NOT_FREE, PAGE_MISSING (slot on page
    0), PAGE_UNASKED (the page is taken, no entry names it), LENGTH_DISAGREES (beyond the table;
    slot 0), OUTSIDE. Raises `KernelError`.
    """
    raise NotImplementedError
