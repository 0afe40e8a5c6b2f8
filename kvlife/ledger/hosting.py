"""The host's page space: what a retraction keeps there, and what a resumption brings back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.ledger.entries import row_entries
from kvlife.ledger.spaces import PageState
from kvlife.ledger.spans import indices

if TYPE_CHECKING:
    from kvlife.ledger.ledger import Ledger
    from kvlife.ledger.spans import At

I32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]


@attrs.frozen(eq=False)
class HostCopy:
    """Pages that are copied to the host or from it: one entry each, group by group, in table order.

    `groups` says whose page an entry is, `table_idx` at which index of the row's page table,
    `pages` which page on the device, and `host_pages` which one on the host: as many as the event
    names for a backup, and as many as the other arrays for a restore, 0 where none holds it.
    """

    groups: npt.NDArray[np.uint8]
    table_idx: I32
    pages: I32
    host_pages: I32

    def pages_of(self, group: int) -> I32:
        """The pages of one group."""
        found: I32 = self.pages[self.groups == group]
        return found


def kept_pages(ledger: Ledger, row: int) -> HostCopy:
    """The pages of a row that only it can bring back: those of [protected, committed).

    In a window group only those that the row references. A page that a step in flight still writes
    is among them where committed ends inside it: up to committed its content is confirmed, and
    what lies above is never read from the copy. No host page is chosen yet.
    """
    rows = ledger.rows
    low_len, high_len = int(rows.protected[row]), int(rows.committed[row])
    return _entries(ledger, row, row_entries(ledger, row, low_len, high_len))


def _entries(ledger: Ledger, row: int, at: tuple[At, ...]) -> HostCopy:
    groups: list[npt.NDArray[np.uint8]] = []
    table_idx: list[I32] = []
    pages: list[I32] = []
    for group, asked in zip(ledger.layout.groups, map(indices, at), strict=True):
        there = ledger.tables[group.idx][asked]
        spots = asked[there != 0]
        pages.append(there[there != 0])
        groups.append(np.full(spots.size, group.idx, np.uint8))
        table_idx.append((spots - row * group.table_width).astype(np.int32))
    none = np.empty(0, np.int32)
    return HostCopy(np.concatenate(groups), np.concatenate(table_idx), np.concatenate(pages), none)


def saved_by(ledger: Ledger, row: int, backup: I32 | None) -> HostCopy | None:
    """What a retraction of this row copies to these host pages; None without a host space."""
    if ledger.host is None or backup is None:
        return None
    return attrs.evolve(kept_pages(ledger, row), host_pages=backup)


def restored_to(
    ledger: Ledger, rid: str, row: int, at: tuple[At, ...], pages: tuple[I32, ...]
) -> HostCopy | None:
    """What a resumption copies from the host to `pages`, for the table entries `at` of its row."""
    if ledger.host is None or not any(map(len, pages)):
        return None
    groups: list[npt.NDArray[np.uint8]] = []
    table_idx: list[I32] = []
    taken: list[I32] = []
    for group, spots, named in zip(ledger.layout.groups, map(indices, at), pages, strict=True):
        num = min(spots.size, named.size)
        groups.append(np.full(num, group.idx, np.uint8))
        table_idx.append((spots[:num] - row * group.table_width).astype(np.int32))
        taken.append(named[:num])
    whose, idx = np.concatenate(groups), np.concatenate(table_idx)
    return HostCopy(whose, idx, np.concatenate(taken), holding(ledger, rid, whose, idx))


def holding(ledger: Ledger, rid: str, groups: npt.NDArray[np.uint8], table_idx: I32) -> I32:
    """The host pages that hold these entries of a waiting request's page tables, 0 for none."""
    waiting, host = ledger.waiting.get(rid), ledger.host
    found = np.zeros(table_idx.size, np.int32)
    if waiting is None or waiting.backup is None or host is None:
        return found
    kept = waiting.backup[host.state[waiting.backup] == PageState.PRIVATE]
    have = _place(host.group[kept], host.link[kept])
    wanted = _place(groups, table_idx)
    order = np.argsort(have, kind="stable")
    at = np.searchsorted(have, wanted, sorter=order)
    inside = at < have.size
    hit = order[at[inside]]
    found[inside] = np.where(have[hit] == wanted[inside], kept[hit], 0)
    return found


def _place(groups: npt.NDArray[np.uint8], table_idx: I32) -> npt.NDArray[np.int64]:
    return groups.astype(np.int64) << 32 | table_idx.astype(np.int64)


def take_host(ledger: Ledger, copy: HostCopy | None, stamp: int) -> None:
    """FREE host pages become PRIVATE, each for the page that is copied to it, as far as both go."""
    host = ledger.host
    if host is None or copy is None or not copy.host_pages.size:
        return
    fresh = host.state[copy.host_pages] == PageState.FREE
    host.take(copy.host_pages, 0, stamp)
    num = min(copy.host_pages.size, copy.pages.size)
    # A faulty event may name a page that another request has: what it holds is not changed.
    chosen = np.flatnonzero(fresh[:num])
    pages = copy.host_pages[chosen]
    host.group[pages] = copy.groups[chosen]
    host.link[pages] = copy.table_idx[chosen]


def let_go_host(ledger: Ledger, pages: I32 | None, stamp: int) -> None:
    """Host pages lose their ref and become FREE."""
    if ledger.host is not None and pages is not None and pages.size:
        ledger.host.let_go(pages, stamp)
