"""`share_pages`: what it takes and does."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.share_pages.reference import share_pages_reference
from kvlife.kernels.table_checks import check_columns, check_entries, check_findings, check_table
from kvlife.kernels.violations import Findings, Violations


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
    check_columns("share_pages", state=state, refs=refs)
    check_table("share_pages", table, state.device)
    check_entries("share_pages", state.device, at, pages=pages)
    check_findings("share_pages", state.device, violations, seq, group)
    if not at.numel():
        return
    findings = Findings(violations=violations, seq=seq, group=group)
    if uses_triton(state):
        # Triton is loaded where it runs, and nowhere else.
        from kvlife.kernels.share_pages.kernel import launch

        launch(table, state, refs, at, pages, findings)
    else:
        share_pages_reference(table, state, refs, at, pages, findings)
