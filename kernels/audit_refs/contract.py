"""`audit_refs`: what it takes and does."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.audit_refs.reference import audit_refs_reference
from kvlife.kernels.checking import check_tensor
from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.table_checks import (
    check_columns,
    check_findings,
    check_groups,
    check_table,
)
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
    `cursors` int32 [windows, rows], in tokens. A row references the pages of [0, allocated), in a
    window group those of [0, floor) and [cursor, allocated). Finds, with the entry of the group's
    table: PAGE_MISSING (a referenced entry is 0), PAGE_UNASKED (another is not), REF_TO_FREE,
    OUTSIDE; and of a page, with -1 and the first group of its space: ALIASED, REFS_DISAGREE, LOST,
    NOT_PINNABLE. Raises `KernelError`.
    """
    check_columns("audit_refs", state=state, refs=refs, pins=pins)
    check_columns("audit_refs", allocated=allocated, floor=floor)
    device = state.device
    check_table("audit_refs", tables, device, name="tables")
    check_groups("audit_refs", groups, device)
    check_tensor(
        "audit_refs", "allocated", allocated, dtype=torch.int32, shape=(None,), device=device
    )
    check_tensor(
        "audit_refs",
        "cursors",
        cursors,
        dtype=torch.int32,
        shape=(None, allocated.numel()),
        device=device,
        contiguous=True,
    )
    check_findings("audit_refs", device, violations, seq, 0)
    if uses_triton(state):
        # Triton is loaded where it runs, and nowhere else.
        from kvlife.kernels.audit_refs.kernel import launch
    else:
        launch = audit_refs_reference
    launch(tables, groups, state, refs, pins, allocated, floor, cursors, violations, seq)
