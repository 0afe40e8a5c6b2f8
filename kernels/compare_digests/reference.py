"""`compare_digests` in torch."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.violations import ViolationCode, Violations, note


def compare_digests_reference(
    found: Tensor, expected: Tensor, pages: Tensor, violations: Violations, *, seq: int, group: int
) -> None:
    """Compare as the contract says."""
    note(
        violations,
        ViolationCode.CONTENT_CHANGED,
        found != expected,
        page=pages,
        where=found,
        seq=seq,
        group=group,
    )
