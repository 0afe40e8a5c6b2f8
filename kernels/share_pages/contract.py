"""`share_pages`: what it takes and does."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.violations import Violations


def share_pages(
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
    """Write `pages` to the table entries `at`; each PRIVATE or CACHED page gains a reference.

    Takes what `bind_pages` takes. A page in another state is left alone and is a NOT_SHARED. Raises
    `KernelError`.
    """
    raise NotImplementedError
