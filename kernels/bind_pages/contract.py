"""`bind_pages`: what it takes and does."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.bind_pages.reference import bind_pages_reference
from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.table_checks import check_columns, check_entries, check_findings, check_table
from kvlife.kernels.violations import Findings, Violations


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
    check_columns("bind_pages", state=state, refs=refs)
    check_table("bind_pages", table, state.device)
    check_entries("bind_pages", state.device, at, pages=pages)
    check_findings("bind_pages", state.device, violations, seq, group)
    if not at.numel():
        return
    findings = Findings(violations=violations, seq=seq, group=group)
    if uses_triton(state):
        # Triton is loaded where it runs, and nowhere else.
        from kvlife.kernels.bind_pages.kernel import launch

        launch(table, state, refs, at, pages, findings)
    else:
        bind_pages_reference(table, state, refs, at, pages, findings)
