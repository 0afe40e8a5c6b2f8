"""`release_pages`: what it takes and does."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.violations import Violations


def release_pages(
    table: Tensor,
    state: Tensor,
    refs: Tensor,
    pins: Tensor,
    at: Tensor,
    pages: Tensor,
    *,
    violations: Violations,
    seq: int,
    group: int = 0,
) -> Tensor:
    """Clear the table entries `at`; each page loses a reference. Returns what became FREE.

    Takes what `bind_pages` takes, and `pins` as `refs`. A PRIVATE page without references becomes
    FREE, or QUARANTINED while it has pins. References do not fall below 0: one too many is a
    DOUBLE_FREE; an entry that held another page is a NOT_REFERENCED. The result is int32 [n]: the
    page where it became FREE, 0 elsewhere; `fill_pages` takes it. Raises `KernelError`.
    """
    raise NotImplementedError
