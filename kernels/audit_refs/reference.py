"""`audit_refs` in torch."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.page_states import PageState
from kvlife.kernels.tables import TableGroup, groups_in
from kvlife.kernels.violations import Findings, ViolationCode, Violations


def audit_refs_reference(
    tables: Tensor,
    groups: Tensor,
    state: Tensor,
    refs: Tensor,
    pins: Tensor,
    allocated: Tensor,
    floor: Tensor,
    cursors: Tensor,
    violations: Violations,
    seq: int,
) -> None:
    """What `audit_refs` says: the entries of each group, then the pages of each space."""
    counts = torch.zeros_like(refs)
    described = groups_in(groups)
    num_rows = allocated.numel()
    for idx, group in enumerate(described):
        end = group.table_start + num_rows * group.table_width
        table = tables[group.table_start : end].view(num_rows, group.table_width)
        cursor = None if group.window_idx is None else cursors[group.window_idx]
        wanted = _wanted(group, allocated, floor, cursor)
        findings = Findings(violations=violations, seq=seq, group=idx)
        _audit_entries(table, wanted, _space(state, group), _space(counts, group), findings)
    seen: set[int] = set()
    for idx, group in enumerate(described):
        if group.page_start not in seen:
            seen.add(group.page_start)
            findings = Findings(violations=violations, seq=seq, group=idx)
            _audit_pages(
                _space(counts, group),
                _space(state, group),
                _space(refs, group),
                _space(pins, group),
                findings,
            )


def _space(column: Tensor, group: TableGroup) -> Tensor:
    return column[group.page_start : group.page_start + group.num_pages]


def _wanted(group: TableGroup, allocated: Tensor, floor: Tensor, cursor: Tensor | None) -> Tensor:
    """Which entries each row references: bool [rows, width]."""
    idx = torch.arange(group.table_width, device=allocated.device)
    low = idx * group.page_size
    wanted = low < allocated[:, None]
    if cursor is not None:
        wanted &= (low < floor[:, None]) | (idx >= (cursor // group.page_size)[:, None])
    return wanted


def _audit_entries(
    table: Tensor, wanted: Tensor, state: Tensor, counts: Tensor, findings: Findings
) -> None:
    pages, where = table.reshape(-1), torch.arange(table.numel(), device=table.device)
    there = (pages > 0) & (pages < state.numel())
    spots = pages[there].long()
    counts.index_add_(0, spots, torch.ones_like(spots, dtype=counts.dtype))
    states = state[torch.where(there, pages, 0).long()]
    held = (states == int(PageState.PRIVATE)) | (states == int(PageState.CACHED))
    codes = torch.zeros_like(where)
    codes[there & ~held] = int(ViolationCode.REF_TO_FREE)
    codes[there & ~wanted.reshape(-1)] = int(ViolationCode.PAGE_UNASKED)
    codes[(pages == 0) & wanted.reshape(-1)] = int(ViolationCode.PAGE_MISSING)
    codes[~there & (pages != 0)] = int(ViolationCode.OUTSIDE)
    findings.add(codes, page=pages, where=where)


def _audit_pages(
    counts: Tensor, state: Tensor, refs: Tensor, pins: Tensor, findings: Findings
) -> None:
    codes = torch.zeros_like(counts)
    codes[(state == int(PageState.FREE)) & (pins > 0)] = int(ViolationCode.NOT_PINNABLE)
    codes[(state == int(PageState.QUARANTINED)) & (pins <= 0)] = int(ViolationCode.LOST)
    codes[(state == int(PageState.PRIVATE)) & (counts == 0)] = int(ViolationCode.LOST)
    codes[counts > refs] = int(ViolationCode.ALIASED)
    codes[counts < refs] = int(ViolationCode.REFS_DISAGREE)
    pages = torch.arange(counts.numel(), device=counts.device)
    findings.add(codes, page=pages, where=-1)
