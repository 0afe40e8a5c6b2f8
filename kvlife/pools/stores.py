"""Stores held against the page tables before they are made: a row writes only pages that it holds.

Which row may write a page is kept on the device, so that nothing waits for a look at the slots:

    taken by a row     that row          published, freed     none
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from kvlife.events import Admitted, Protected, Resized, Resumed, RolledBack
from kvlife.invariants.effect import holders, page_evidence
from kvlife.invariants.finding import MAX_NAMED, few
from kvlife.kernels.check_stores import check_stores
from kvlife.ledger import PageState
from kvlife.ledger.spans import indices
from kvlife.pools.accusing import CONTENT
from kvlife.pools.contract import DeviceFinding

if TYPE_CHECKING:
    from kvlife.events import Event
    from kvlife.kernels.violations import Violation, Violations
    from kvlife.ledger import Change, Ledger
    from kvlife.pools.uploading import Uploads

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Index = npt.NDArray[np.intp]

# In the place of a row that was bound to somebody else since its slots were given out.
_GONE = -1
# Stores that are remembered, to name the rows of those that were strange.
_MAX_STORES = 256


@attrs.frozen(eq=False)
class _Issued:
    """Slots that were given out: of which rows, bound when, how many each (None: one)."""

    rows: I32
    bound: I64
    counts: I32 | None

    def row_of_each(self, bound: I64) -> I32:
        """The row of each slot; one that was bound anew since is nobody's."""
        rows = np.where(bound[self.rows] == self.bound, self.rows, _GONE).astype(np.int32)
        return rows if self.counts is None else np.repeat(rows, self.counts)


@attrs.frozen(eq=False)
class _Store:
    """A store that was looked at: behind which event, and the row of each slot, where known."""

    seq: int
    group: int
    slots: Tensor
    rows: Tensor | None


class StoreWatch:
    """Knows the writers of pages, and the rows of slots that were given out."""

    def __init__(self, ledger: Ledger, violations: Violations, uploads: Uploads) -> None:
        """Take over who holds what."""
        self._ledger = ledger
        self._violations = violations
        self._uploads = uploads
        self._seq = max(ledger.next_seq - 1, 0)
        self._writers = [
            self._none(ledger.spaces[group.space_idx].num_pages) for group in ledger.layout.groups
        ]
        # By row, the seq of the event that bound it.
        self._bound: I64 = np.zeros(ledger.layout.num_rows, np.int64)
        self._issued = WeakIdKeyDictionary()
        self._checked: tuple[Tensor, int] | None = None
        self._stores: deque[_Store] = deque(maxlen=_MAX_STORES)
        for group in ledger.layout.groups:
            self._find_writers(group.idx, np.unique(ledger.tables[group.idx]))

    def _none(self, num_pages: int) -> Tensor:
        return torch.zeros(num_pages, dtype=torch.int32, device=self._uploads.device)

    # Who may write which page.

    def follow(self, event: Event, change: Change, seq: int) -> None:
        """Take up what an event changes, after the ledger has applied it."""
        self._seq = seq
        self._checked = None
        if isinstance(event, Admitted | Resumed):
            self._bound[event.row] = seq
        if change.taken is not None and change.taken_at is not None:
            for group in self._ledger.layout.groups:
                pages, spots = change.taken[group.idx], indices(change.taken_at[group.idx])
                num = min(pages.size, spots.size)
                self._set(group.idx, pages[:num], spots[:num] // group.table_width)
        for idx, listed in enumerate(change.gone or ()):
            # What others still hold may be theirs alone from now on.
            self._find_writers(idx, listed[self._states(idx, listed) == PageState.PRIVATE])
        if isinstance(event, Protected):
            self._published(event)
        elif isinstance(event, RolledBack):
            for idx, row, shared, new in event.copies.tolist():
                self._set(idx, np.array([new], np.int32), np.array([row], np.intp))
                self._find_writers(idx, np.array([shared], np.int32))
        elif isinstance(event, Resized):
            self._resize()

    def freed(self, group: int, pages: I32) -> None:
        """Nobody may write these pages."""
        self._set(group, pages, np.zeros(pages.size, np.intp))

    def _set(self, group: int, pages: I32, rows: Index) -> None:
        if pages.size:
            there, writers = self._uploads.several(pages, rows.astype(np.int32))
            self._writers[group][there.long()] = writers

    def _states(self, group: int, pages: I32) -> npt.NDArray[np.uint8]:
        states = self._ledger.spaces[self._ledger.layout.groups[group].space_idx].state
        return states[np.minimum(pages, states.size - 1)]

    def _find_writers(self, group: int, pages: I32) -> None:
        """Of PRIVATE pages with one reference it is the row that has it; of others, nobody."""
        pages = np.unique(pages[pages > 0])
        if not pages.size:
            return
        layout = self._ledger.layout.groups[group]
        space = self._ledger.spaces[layout.space_idx]
        table = self._ledger.tables[group]
        spots = np.flatnonzero(np.isin(table, pages))
        rows = np.zeros(pages.size, np.intp)
        rows[np.searchsorted(pages, table[spots])] = spots // layout.table_width
        alone = (space.state[pages] == PageState.PRIVATE) & (space.refs[pages] == 1)
        self._set(group, pages, np.where(alone, rows, 0))

    def _published(self, event: Protected) -> None:
        for group in self._ledger.layout.groups:
            high = min(max(event.protected_len // group.page_size, 0), group.table_width)
            low = max(high - event.keys[group.idx].size, 0)
            base = event.row * group.table_width
            pages = self._ledger.tables[group.idx][base + low : base + high]
            self.freed(group.idx, pages[self._states(group.idx, pages) == PageState.CACHED])

    def _resize(self) -> None:
        for group in self._ledger.layout.groups:
            old = self._writers[group.idx]
            fresh = self._none(self._ledger.spaces[group.space_idx].num_pages)
            num = min(old.numel(), fresh.numel())
            fresh[:num] = old[:num]
            self._writers[group.idx] = fresh

    # Slots, given out and stored to.

    def issued(self, slots: Tensor, rows: I32, counts: I32 | None = None) -> None:
        """Remember whose these slots are, in row order, as long as the tensor lives."""
        self._issued[slots] = _Issued(rows, self._bound[rows], counts)

    def check(self, group: int, slots: Tensor, rows: Tensor | None = None) -> None:
        """Report slots whose row does not hold their page, in the violation buffer.

        `rows` int32, one for each slot, may be left out for a tensor of slots as it was given out.
        Of others, any row must hold the page.
        """
        last, self._checked = self._checked, (slots, group)
        # The layers of one step store to the same slots.
        if last is not None and last[0] is slots and last[1] == group:
            return
        if rows is None:
            rows = self._rows_of(slots)
        layout = self._ledger.layout.groups[group]
        check_stores(
            slots.reshape(-1), rows, self._writers[group], layout.page_size,
            violations=self._violations, seq=self._seq, group=group,
        )  # fmt: skip
        self._stores.append(_Store(self._seq, group, slots.reshape(-1), rows))

    def _rows_of(self, slots: Tensor) -> Tensor | None:
        known = self._issued.get(slots)
        return None if known is None else self._uploads.one(known.row_of_each(self._bound))

    def accused(self, entries: Sequence[Violation]) -> DeviceFinding:
        """The finding for the strange slots of one group, behind one event."""
        ledger, first = self._ledger, entries[0]
        group = ledger.layout.groups[first.group]
        slots = list(dict.fromkeys(entry.where for entry in entries))
        pages = list(dict.fromkeys(entry.page for entry in entries if entry.page >= 0))
        rows = self._rows_storing(first, slots)
        held = np.flatnonzero(np.isin(ledger.tables[group.idx], pages)) // group.table_width
        by = f"row {rows[0]}" if rows else "a store"
        whose = holders(ledger, np.unique(held))
        where = f"page {pages[0]} of {group.name}" if pages else f"no page of {group.name}"
        evidence: dict[str, object] = {
            "why": f"{by} stored to slot {slots[0]}, on {where},"
            f" which {', '.join(whose) if whose else 'no row'} holds",
        }
        evidence |= page_evidence(ledger, group.space_idx, pages)
        evidence |= {"group": group.name, "what": "stored", "slots": slots[:MAX_NAMED]}
        evidence |= {"rows": rows, "holders": holders(ledger, rows), "held_by": whose}
        return DeviceFinding(invariant=CONTENT, seq=first.seq, evidence=evidence)

    def _rows_storing(self, entry: Violation, slots: list[int]) -> list[int]:
        """The rows whose stores these were, where they are known and go on."""
        rows = [
            store.rows[torch.isin(store.slots, torch.tensor(slots).to(store.slots))]
            for store in self._stores
            if (store.seq, store.group) == (entry.seq, entry.group) and store.rows is not None
        ]
        found = torch.cat(rows).unique().cpu().numpy() if rows else np.empty(0, np.int32)
        return few(found[found > 0])
