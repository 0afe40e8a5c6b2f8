"""`bind_pages`: what it takes and does."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.violations import Violations


def bind_pages(
    table: Tensor,
    state: Tensor,
    refs: Tensor,
    at: Tensor,
    pages: Tensor,
    *,
    violations: Violations,
    seq: int,
    group: int = 0,
) -> None:
    """Write `pages` to the table entries `at`; each FREE page becomes PRIVATE with a reference.

    `table` int32 [entries], `state` and `refs` int32 [pages of the space]: contiguous, changed in
    place. `at` int64 [n] (-1: the page has no entry), `pages` int32 [n], of any stride. As in the
    ledger, a PRIVATE or CACHED page gains a reference, any other is left alone; each that was not
    FREE is a NOT_FREE. Raises `KernelError`.
    """
    raise NotImplementedError
