"""The ledger: the whole state of KV memory, changed by `apply` and nothing else."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.config import Layout, PoolConfig, SpaceLayout, compile_layout
from kvlife.ledger.apply import APPLY
from kvlife.ledger.change import Change
from kvlife.ledger.deriving import derive
from kvlife.ledger.measure import PageMeasure
from kvlife.ledger.rows import RowColumns
from kvlife.ledger.snapshot import FrozenState, LedgerSnapshot, StagingArea
from kvlife.ledger.spaces import PageSpace
from kvlife.ledger.thawing import thaw
from kvlife.records import ReqKvBatch, ReqKvInfo, RetractionBackup

if TYPE_CHECKING:
    from kvlife.events import Event, PageLists
    from kvlife.ledger.books import OpenStep, Pin, Session, Waiting
    from kvlife.ledger.spans import At

I32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]

# Seqs in page columns are 32-bit distances from a base; when they would not fit, the base moves.
_STAMP_LIMIT = (1 << 32) - 2
_STAMP_SHIFT = 1 << 31

MEMBERSHIP_BITS = 48
_LEDGERS = itertools.count()

EMPTY = np.empty(0, np.int32)
EMPTY.setflags(write=False)
NO_ROWS = np.empty(0, np.intp)
NO_ROWS.setflags(write=False)


class Ledger:
    """Columns and books of one engine, for a layout; a fold over events.

    `tables[group]` is the page table of a group, flattened: row * table_width + page index.
    `host` is the host's page space, or None: it holds what retracted requests keep, and there a
    page's `group` and `link` say whose page it holds, and at which index of the page table.
    `requests` maps a live request id to its row, `waiting` a retracted one to its record.
    `membership` rises whenever a row changes hands, from a number that no other ledger of this
    process passes: above the lowest `MEMBERSHIP_BITS` it says which ledger it is.
    """

    def __init__(self, config: PoolConfig) -> None:
        """Make an empty ledger; raises `ConfigError` for a configuration that cannot be."""
        self.config = config
        self.layout: Layout = compile_layout(config)
        num_rows = self.layout.num_rows
        self.rows = RowColumns.create(num_rows, len(self.layout.window_groups))
        self.spaces = [
            PageSpace.create(space.num_pages, fifo=self.layout.fifo) for space in self.layout.spaces
        ]
        self.host: PageSpace | None = None
        if self.layout.host_pages:
            self.host = PageSpace.create(self.layout.host_pages, fifo=self.layout.fifo)
        self.tables: list[I32] = [
            np.zeros(num_rows * group.table_width, np.int32) for group in self.layout.groups
        ]
        self.measures = [
            PageMeasure(group.page_size, group.table_width) for group in self.layout.groups
        ]
        self.requests: dict[str, int] = {}
        self.waiting: dict[str, Waiting] = {}
        self.sessions: dict[str, Session] = {}
        self.pins: dict[str, Pin] = {}
        self.steps: dict[int, OpenStep] = {}
        self.next_seq = 0
        self.seq_base = 0
        self.time_ns = 0
        self.membership = next(_LEDGERS) << MEMBERSHIP_BITS
        self.no_pages: PageLists = (EMPTY,) * len(self.layout.groups)
        self._staging = StagingArea()
        self._last_rows: I32 | None = None
        self._last_index: Index = np.empty(0, np.intp)
        self._bases: tuple[Index, int, Index] | None = None
        self._ones: dict[int, bytes] = {}

    def apply(
        self, event: Event, seq: int, time_ns: int = 0, change: Change | None = None
    ) -> Change:
        """Fold one well-formed event in; `change` is what `derive` said of it, if that is known."""
        if change is None:
            change = derive(self, event)
        stamp = seq - self.seq_base
        if stamp >= _STAMP_LIMIT:
            stamp = self._move_base(seq)
        self.time_ns = time_ns
        APPLY[type(event)](self, event, change, seq, stamp)
        self.next_seq = seq + 1
        return change

    def _move_base(self, seq: int) -> int:
        while seq - self.seq_base >= _STAMP_LIMIT:
            self.seq_base += _STAMP_SHIFT
            for space in (*self.spaces, *(() if self.host is None else (self.host,))):
                for column in (space.last_use, space.last_event):
                    np.maximum(column, _STAMP_SHIFT, out=column)
                    np.subtract(column, _STAMP_SHIFT, out=column)
        return seq - self.seq_base

    def index_of(self, rows: I32) -> Index:
        """Rows as an index array; the last answer is kept for the same (read-only) array."""
        if rows is self._last_rows:
            return self._last_index
        if not rows.size:
            return NO_ROWS
        index = rows.astype(np.intp)
        if not rows.flags.writeable:
            self._last_rows, self._last_index = rows, index
        return index

    def bases_of(self, index: Index, width: int) -> Index:
        """First table positions of rows; the last answer is kept for the same index array."""
        kept = self._bases
        if kept is not None and kept[0] is index and kept[1] == width:
            return kept[2]
        bases = index * width
        if index is self._last_index:
            self._bases = (index, width, bases)
        return bases

    def ones_bytes(self, num: int) -> bytes:
        """The bytes of `num` int32 ones."""
        known = self._ones.get(num)
        if known is None:
            if len(self._ones) > 4096:
                self._ones.clear()
            known = self._ones[num] = np.ones(num, np.int32).tobytes()
        return known

    def resize(self, space_idx: int, num_pages: int) -> None:
        """Give a page space another size (only from `apply`).

        Where a faulty event would drop pages that are in use, or that something still names, the
        space shrinks to the last of them.
        """
        space = self.spaces[space_idx]
        num_pages = max(num_pages, 1)
        if num_pages < space.num_pages:
            num_pages = max(num_pages, self._last_page_named(space_idx) + 1)
        space.resize(num_pages)
        spaces = list(self.layout.spaces)
        old = spaces[space_idx]
        spaces[space_idx] = SpaceLayout(idx=old.idx, name=old.name, num_pages=num_pages)
        self.layout = attrs.evolve(self.layout, spaces=tuple(spaces))

    def _last_page_named(self, space_idx: int) -> int:
        """The highest page of a space that is not FREE, or stands in a table, pin or open step."""
        groups = [group.idx for group in self.layout.groups if group.space_idx == space_idx]
        named = [int(self.tables[group].max(initial=0)) for group in groups]
        named += [
            int(pages.max(initial=0))
            for group, pages in (
                *((pin.group, pin.pages) for pin in self.pins.values()),
                *(pinned for step in self.steps.values() for pinned in step.pinned),
            )
            if group in groups
        ]
        used = np.flatnonzero(self.spaces[space_idx].state)
        return max(*named, int(used[-1]))

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held: no request on a row, session, pin or step in flight."""
        return not (self.requests or self.sessions or self.pins or self.steps)

    def record(self, rid: str) -> ReqKvInfo | None:
        """The record of a live or waiting request, or None; a value that never changes later."""
        row = self.requests.get(rid)
        if row is not None:
            return self.row_record(row)
        waiting = self.waiting.get(rid)
        if waiting is None:
            return None
        backup = None
        if waiting.backup is not None:
            backup = RetractionBackup(
                host_pages=tuple(waiting.backup.tolist()), kept_len=waiting.committed_len
            )
        return ReqKvInfo(
            prompt_len=waiting.prompt_len,
            swa_evicted_seqlens=(0,) * len(self.layout.window_groups),
            retraction_backup=backup,
        )

    def row_record(self, row: int) -> ReqKvInfo:
        """The record of a row."""
        rows = self.rows
        allocated = int(rows.allocated[row])
        return ReqKvInfo(
            req_pool_idx=row,
            cache_protected_len=int(rows.protected[row]),
            kv_committed_len=int(rows.committed[row]),
            kv_allocated_len=allocated,
            swa_evict_floor=int(rows.floor[row]),
            swa_evicted_seqlens=tuple(rows.cursors[:, row].tolist()),
            prompt_len=int(rows.prompt_len[row]),
            settled_len=min(int(rows.settled[row]), allocated),
        )

    def batch_record(self, rows: I32) -> ReqKvBatch:
        """The records of many rows as arrays, one entry each; copies."""
        index, columns = self.index_of(rows), self.rows
        allocated = columns.allocated.take(index)
        return ReqKvBatch(
            req_pool_idx=rows.copy(),
            cache_protected_len=columns.protected.take(index),
            kv_committed_len=columns.committed.take(index),
            kv_allocated_len=allocated,
            swa_evict_floor=columns.floor.take(index),
            swa_evicted_seqlens=tuple(column[index] for column in columns.cursors),
            prompt_len=columns.prompt_len.take(index),
            settled_len=np.minimum(columns.settled.take(index), allocated),
        )

    def pages_of(self, row: int, group: int) -> I32:
        """One row's page table in one group, up to its allocated length; 0 = not referenced."""
        layout = self.layout.groups[group]
        num = min(-(-max(int(self.rows.allocated[row]), 0) // layout.page_size), layout.table_width)
        base = row * layout.table_width
        return self.tables[group][base : base + num].copy()

    def pages_at(self, at: tuple[At, ...]) -> PageLists:
        """The pages at these entries of each group's table, as copies."""
        return tuple(table[spots].copy() for table, spots in zip(self.tables, at, strict=True))

    def snapshot(self) -> LedgerSnapshot:
        """A copy of the state now, to be frozen on another thread."""
        return LedgerSnapshot.take(self, self._staging)

    def prepare_snapshots(self) -> None:
        """Touch the buffers that the first snapshot copies into, so that it does not wait."""
        self.snapshot().release()

    def digest(self) -> int:
        """64 bits, equal for equal states."""
        snapshot = self.snapshot()
        try:
            return snapshot.freeze().digest
        finally:
            snapshot.release()

    @classmethod
    def restore(cls, config: PoolConfig, state: FrozenState) -> Ledger:
        """The ledger that a frozen state was taken of."""
        ledger = cls(config)
        thaw(ledger, state)
        return ledger
