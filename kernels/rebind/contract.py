"""`rebind`: what it takes and does."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.violations import Violations


def rebind(
    table: Tensor,
    state: Tensor,
    refs: Tensor,
    pins: Tensor,
    at: Tensor,
    own: Tensor,
    canonical: Tensor,
    *,
    violations: Violations,
    seq: int,
    group: int = 0,
) -> Tensor:
    """Write `canonical` to the entries `at` as `share_pages` does, then let go of `own`.

    Takes and returns what `release_pages` does; `own` and `canonical` are int32 [n]. All are shared
    before the first is let go. An entry that did not hold `own` is a NOT_REFERENCED. Raises
    `KernelError`.
    """
    raise NotImplementedError
