"""`change_pages`: what it takes and does."""

from __future__ import annotations

import enum

from torch import Tensor

from kvlife.kernels.violations import Violations


class Transition(enum.IntEnum):
    """What `change_pages` does to each page."""

    PUBLISH = 0
    EVICT = 1
    PIN = 2
    UNPIN = 3


def change_pages(
    state: Tensor,
    refs: Tensor,
    pins: Tensor,
    pages: Tensor,
    transition: Transition,
    *,
    violations: Violations,
    seq: int,
    group: int = 0,
) -> Tensor:
    """Publish, evict, pin or unpin each of `pages`. Returns what became FREE, as `release_pages`.

    PUBLISH: PRIVATE becomes CACHED; CACHED stays; others are left alone, a NOT_PUBLISHABLE.
    EVICT: CACHED becomes FREE with no reference; one that was not CACHED (then left alone), or had
    references or pins, is a NOT_EVICTABLE.
    PIN: one pin more; a FREE page is a NOT_PINNABLE.
    UNPIN: one pin less, not below 0 (NOT_PINNED); a QUARANTINED page without pins becomes FREE.
    Raises `KernelError`.
    """
    raise NotImplementedError
