"""`digest_pages`: what it takes, checks and does."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.digest_pages.reference import digest_pages_reference
from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.page_checks import (
    check_arena,
    check_pages,
    check_report,
)
from kvlife.kernels.planes import Planes
from kvlife.kernels.violations import Violations

NAME = "digest_pages"


def digest_pages(
    arena: Tensor,
    planes: Planes,
    pages: Tensor,
    *,
    violations: Violations | None = None,
    seq: int = 0,
    group: int = 0,
) -> Tensor:
    """A digest of each page's content over all layers and planes: int64 [n], the bits of 64.

    `arena` uint8 [bytes], contiguous. `pages` int32 or int64 [n], of any stride, on its device; a
    page may stand several times, and page 0 is padding, with digest 0. On the CPU a page outside
    the pool is a `KernelError`; on a device it has digest 0 and goes to `violations` as OUTSIDE
    (where: i). Raises `KernelError`.

    The content is planes in order, in each its layers in order, in each section words of 8 bytes,
    little-endian, the last filled up with zeros. `mixing.py` has the formula: a sum of mixed words,
    so that neither launch shape nor order in memory matters: buffers of either order with equal
    content have equal digests. Each word is mixed with its place by a bijection. So whatever
    changes within one word, a single bit or all 64, changes the digest for certain. Changes in
    several words, words, layers or planes that change places among them, go unseen only where sums
    of mixed words meet: one in 2^64, if content does not depend on the mix. It guards against
    faults, not against somebody who computes collisions.
    """
    check_arena(NAME, arena, planes)
    check_report(NAME, violations, arena, seq, group)
    check_pages(NAME, "pages", pages, arena, planes.num_pages)
    if uses_triton(arena):
        # Triton is loaded where it is used.
        from kvlife.kernels.digest_pages.kernel import digest_pages_triton

        return digest_pages_triton(arena, planes, pages, violations, seq=seq, group=group)
    return digest_pages_reference(arena, planes, pages)
