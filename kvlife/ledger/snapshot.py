"""Snapshots: a quick copy on the engine's thread, compacted to live entries on another."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import numpy as np
import numpy.typing as npt

from kvlife.errors import LogCorrupt
from kvlife.ledger.books import OpenStep, Pin, Session, Waiting
from kvlife.ledger.rows import RowState
from kvlife.ledger.spaces import PageState
from kvlife.ledger.spans import spans_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvlife.ledger.ledger import Ledger

# Entries that a freezing snapshot copies at a time.
_PIECE = 1 << 15

Array = npt.NDArray[Any]  # Any: columns of every dtype

_ROW_COLUMNS = (
    "protected",
    "committed",
    "allocated",
    "settled",
    "prompt_len",
    "floor",
    "in_flight",
    "newest_step",
    "namespace",
    "last_event",
)
_PAGE_COLUMNS = ("state", "group", "refs", "pins", "key", "link", "last_use", "last_event")


@attrs.frozen(eq=False)
class FrozenState:
    """A state as named arrays and a MessagePack blob; `digest` is equal for equal states."""

    arrays: Mapping[str, Array]
    meta: bytes
    digest: int


class StagingArea:
    """Buffers that snapshots copy page columns into, used again so that no copy faults pages in."""

    def __init__(self) -> None:
        """No buffers yet; they are made at the first snapshot."""
        self._spare: list[dict[str, Array]] = []

    def borrow(self) -> dict[str, Array]:
        """A set of buffers, by name; empty where none is spare."""
        return self._spare.pop() if self._spare else {}

    def give_back(self, buffers: dict[str, Array]) -> None:
        """Keep one spare set."""
        if not self._spare:
            self._spare.append(buffers)


def _buffer(buffers: dict[str, Array], name: str, like: Array) -> Array:
    kept = buffers.get(name)
    if kept is None or kept.shape != like.shape:
        kept = buffers[name] = np.empty_like(like)
    return kept


def _copy(buffers: dict[str, Array], name: str, column: Array) -> Array:
    kept = _buffer(buffers, name, column)
    np.copyto(kept, column)
    return kept


def _gather(column: Array, live: Array) -> Array:
    """The live entries of a column, in pieces between which other threads get their turn."""
    found = np.empty(live.size, column.dtype)
    for start in range(0, live.size, _PIECE):
        piece = live[start : start + _PIECE]
        column.take(piece, out=found[start : start + piece.size], mode="clip")
        # An array operation holds the interpreter's lock, and the engine's thread waits for it.
        time.sleep(0)
    return found


class LedgerSnapshot:
    """The state after all events below `seq`, copied; `freeze` may run on any thread."""

    def __init__(
        self, seq: int, meta: dict[str, object], arrays: dict[str, Array], staging: StagingArea
    ) -> None:
        """Made by `Ledger.snapshot`."""
        self.seq = seq
        self._meta = meta
        self._arrays = arrays
        self._staging = staging
        self._buffers: dict[str, Array] = {}

    @classmethod
    def take(cls, ledger: Ledger, staging: StagingArea) -> LedgerSnapshot:
        """Copy what the engine's thread may change: columns whole, tables of rows in use."""
        buffers = staging.borrow()
        arrays: dict[str, Array] = {}
        for space_idx, space in enumerate(ledger.spaces):
            for name in _PAGE_COLUMNS:
                label = f"page.{space_idx}.{name}"
                arrays[label] = _copy(buffers, label, getattr(space, name))
            label = f"free.{space_idx}"
            arrays[label] = space.free.pages_into(_buffer(buffers, label, space.free.slots))
        live = np.flatnonzero(
            (ledger.rows.state != RowState.FREE) & (ledger.rows.state != RowState.RESERVED)
        )
        arrays["row.idx"] = live.astype(np.int32)
        arrays["row.state"] = ledger.rows.state[live]
        arrays["row.generation"] = ledger.rows.generation.copy()
        for name in _ROW_COLUMNS:
            arrays[f"row.{name}"] = getattr(ledger.rows, name)[live]
        arrays["row.cursors"] = ledger.rows.cursors[:, live].ravel()
        for group in ledger.layout.groups:
            table = ledger.tables[group.idx].reshape(-1, group.table_width)
            counts = _table_counts(arrays["row.allocated"], group.page_size, group.table_width)
            parts = [table[row, :num] for row, num in zip(live.tolist(), counts, strict=True)]
            joined = np.concatenate(parts) if parts else np.empty(0, np.int32)
            arrays[f"table.{group.idx}"] = joined
        taken = cls(ledger.next_seq, _books(ledger, live), arrays, staging)
        taken._buffers = buffers
        return taken

    def freeze(self) -> FrozenState:
        """Compact to live entries and hash; costs time, touches nothing of the ledger."""
        arrays = {
            name: array.copy() if name.startswith("free.") else array
            for name, array in self._arrays.items()
            if not name.startswith("page.")
        }
        spaces: Any = self._meta["spaces"]  # Any: a list of ints inside the untyped books
        for space_idx in range(len(spaces)):
            state = self._arrays[f"page.{space_idx}.state"]
            live = np.flatnonzero((state != PageState.FREE) & (state != PageState.RESERVED))
            arrays[f"page.{space_idx}.idx"] = live.astype(np.int32)
            for name in _PAGE_COLUMNS:
                label = f"page.{space_idx}.{name}"
                arrays[label] = _gather(self._arrays[label], live)
        meta = msgspec.msgpack.encode(self._meta)
        return FrozenState(arrays, meta, state_digest(arrays, meta))

    def release(self) -> None:
        """Give the buffers back; the snapshot is of no use after it."""
        self._staging.give_back(self._buffers)
        self._buffers = {}
        self._arrays = {}


def _table_counts(allocated: Array, page_size: int, width: int) -> list[int]:
    counts: list[int] = np.clip(-(-allocated.astype(np.int64) // page_size), 0, width).tolist()
    return counts


def state_digest(arrays: Mapping[str, Array], meta: bytes) -> int:
    """64 bits over all arrays, by name, and the books."""
    whole = hashlib.blake2b(meta, digest_size=8)
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        whole.update(f"{name}:{array.dtype.str}:{array.size};".encode())
        whole.update(array.view(np.uint8).data if array.size else b"")
    return int.from_bytes(whole.digest(), "little")


def _books(ledger: Ledger, live: Array) -> dict[str, object]:
    rows = ledger.rows
    return {
        "next_seq": ledger.next_seq,
        "seq_base": ledger.seq_base,
        "spaces": [space.num_pages for space in ledger.spaces],
        "holders": [[rows.rid[row], rows.session[row]] for row in live.tolist()],
        "waiting": [
            [rid, w.prompt_len, w.committed_len, w.namespace, _ints(w.backup), w.seq]
            for rid, w in sorted(ledger.waiting.items())
        ],
        "sessions": [
            [sid, s.row, s.rid, s.kept_len, s.protected_len, s.num_turns, s.seq]
            for sid, s in sorted(ledger.sessions.items())
        ],
        "pins": [
            [pid, p.kind, p.writes, p.owner, p.group, _ints(p.pages), p.seq]
            for pid, p in sorted(ledger.pins.items())
        ],
        "steps": [
            [
                step,
                o.rows.tolist(),
                o.noted.tolist(),
                o.seq,
                [[group, pages.tolist()] for group, pages in o.pinned],
            ]
            for step, o in ledger.steps.items()
        ],
    }


def _ints(array: Array | None) -> list[int] | None:
    return None if array is None else array.tolist()


class _Books(msgspec.Struct, forbid_unknown_fields=True):
    """The books as they lie in a snapshot; decoding checks every type."""

    next_seq: int
    seq_base: int
    spaces: list[int]
    holders: list[tuple[str | None, str | None]]
    waiting: list[tuple[str, int, int, int, list[int] | None, int]]
    sessions: list[tuple[str, int, str | None, int, int, int, int]]
    pins: list[tuple[str, str, bool, str | None, int, list[int], int]]
    steps: list[tuple[int, list[int], list[int], int, list[tuple[int, list[int]]]]]


def thaw(ledger: Ledger, state: FrozenState) -> None:
    """Fill an empty ledger; raises `LogCorrupt` where the arrays do not fit it."""
    if state_digest(state.arrays, state.meta) != state.digest:
        raise LogCorrupt("the snapshot does not have the digest it names: start from another one")
    try:
        books = msgspec.msgpack.decode(state.meta, type=_Books)
        _thaw_pages(ledger, state, books)
        _thaw_rows(ledger, state, books)
    except (msgspec.MsgspecError, KeyError, ValueError, IndexError, OverflowError) as error:
        raise LogCorrupt(f"the snapshot does not fit its header: {error}") from error
    ledger.next_seq, ledger.seq_base = books.next_seq, books.seq_base
    ledger.waiting = {
        rid: Waiting(
            prompt_len=prompt_len,
            committed_len=committed_len,
            namespace=namespace,
            backup=None if backup is None else np.array(backup, np.int32),
            seq=seq,
        )
        for rid, prompt_len, committed_len, namespace, backup, seq in books.waiting
    }
    ledger.sessions = {
        sid: Session(row=row, rid=rid, kept_len=kept, protected_len=prot, num_turns=turns, seq=seq)
        for sid, row, rid, kept, prot, turns, seq in books.sessions
    }
    ledger.pins = {
        pid: Pin(
            kind=kind,
            writes=writes,
            owner=owner,
            group=group,
            pages=np.array(pages, np.int32),
            seq=seq,
            time_ns=0,
        )
        for pid, kind, writes, owner, group, pages, seq in books.pins
    }
    for step, rows, noted, seq, pinned in books.steps:
        opened = OpenStep(np.array(rows, np.intp), np.array(noted, np.int32), seq)
        opened.pinned = [(group, np.array(pages, np.int32)) for group, pages in pinned]
        ledger.steps[step] = opened


def _thaw_pages(ledger: Ledger, state: FrozenState, books: _Books) -> None:
    if len(books.spaces) != len(ledger.spaces):
        raise ValueError(f"{len(books.spaces)} page spaces for {len(ledger.spaces)}")
    for space_idx, num_pages in enumerate(books.spaces):
        space = ledger.spaces[space_idx]
        live = _ids(state.arrays[f"page.{space_idx}.idx"], num_pages)
        free = _ids(state.arrays[f"free.{space_idx}"], num_pages)
        if live.size + free.size > num_pages:
            raise ValueError(f"{live.size} live and {free.size} free pages of {num_pages}")
        if num_pages != space.num_pages:
            ledger.resize(space_idx, num_pages)
        for name in _PAGE_COLUMNS:
            getattr(space, name)[live] = state.arrays[f"page.{space_idx}.{name}"]
        space.free.start = space.free.num_free = 0
        if not space.free.put_back(free if space.free.fifo else free[::-1]):
            raise ValueError("a page stands twice in the free list")


def _thaw_rows(ledger: Ledger, state: FrozenState, books: _Books) -> None:
    rows = ledger.rows
    live = _ids(state.arrays["row.idx"], ledger.layout.num_rows)
    rows.state[live] = state.arrays["row.state"]
    rows.generation[:] = state.arrays["row.generation"]
    for name in _ROW_COLUMNS:
        getattr(rows, name)[live] = state.arrays[f"row.{name}"]
    rows.cursors[:, live] = state.arrays["row.cursors"].reshape(len(rows.cursors), live.size)
    for row, (rid, session) in zip(live.tolist(), books.holders, strict=True):
        rows.rid[row], rows.session[row] = rid, session
        if rid is not None:
            ledger.requests[rid] = row
    for group in ledger.layout.groups:
        counts = np.array(
            _table_counts(rows.allocated[live], group.page_size, group.table_width), np.int32
        )
        at = spans_of(live.astype(np.intp) * group.table_width, np.zeros_like(counts), counts)
        pages = state.arrays[f"table.{group.idx}"]
        if at.size != pages.size:
            raise ValueError(f"{pages.size} table entries of {group.name!r} for {at.size}")
        num_pages = ledger.spaces[group.space_idx].num_pages
        if pages.size and not 0 <= int(pages.min()) <= int(pages.max()) < num_pages:
            raise ValueError(f"a table entry of {group.name!r} is out of range")
        ledger.tables[group.idx][at] = pages


def _ids(ids: Array, bound: int) -> Array:
    """Distinct ids in [1, bound)."""
    if ids.size and (int(ids.min()) < 1 or int(ids.max()) >= bound):
        raise ValueError(f"an id is out of [1, {bound})")
    if np.unique(ids).size != ids.size:
        raise ValueError("an id stands twice")
    return ids
