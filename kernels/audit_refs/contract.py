"""`audit_refs`: what it takes and does."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.violations import Violations


def audit_refs(
    tables: Tensor,
    groups: Tensor,
    state: Tensor,
    refs: Tensor,
    pins: Tensor,
    allocated: Tensor,
    floor: Tensor,
    cursors: Tensor,
    *,
    violations: Violations,
    seq: int,
) -> None:
    """Compare each page with what the tables of all groups hold; nothing but findings is written.

    The arenas and `groups` are those of `decode_step`; `allocated` and `floor` int32 [rows],
    `cursors` int32 [windows, rows], in tokens. A row references the entries of [0, allocated), in a
    window group those of [0, floor) and [cursor, allocated). Finds, with the table entry or -1:
    PAGE_MISSING (a referenced entry is 0), PAGE_UNASKED (another is not), REF_TO_FREE, ALIASED,
    REFS_DISAGREE, LOST, NOT_PINNABLE, OUTSIDE. Raises `KernelError`.
    """
    raise NotImplementedError
