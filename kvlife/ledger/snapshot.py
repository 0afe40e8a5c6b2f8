"""Snapshots: a quick copy on the engine's thread, compacted to live entries on another."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import numpy as np
import numpy.typing as npt

from kvlife.ledger.spaces import PageState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvlife.ledger.ledger import Ledger
    from kvlife.ledger.spaces import PageSpace

# Entries that a freezing snapshot copies at a time.
_PIECE = 1 << 15

Array = npt.NDArray[Any]  # Any: columns of every dtype

ROW_COLUMNS = (
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
PAGE_COLUMNS = ("state", "group", "refs", "pins", "key", "link", "last_use", "last_event")


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
        for space_label, space in labelled_spaces(ledger):
            for name in PAGE_COLUMNS:
                label = f"page.{space_label}.{name}"
                arrays[label] = _copy(buffers, label, getattr(space, name))
            label = f"free.{space_label}"
            arrays[label] = space.free.pages_into(_buffer(buffers, label, space.free.slots))
        live = ledger.rows.in_use()
        arrays["row.idx"] = live.astype(np.int32)
        arrays["row.state"] = ledger.rows.state[live]
        arrays["row.generation"] = ledger.rows.generation.copy()
        for name in ROW_COLUMNS:
            arrays[f"row.{name}"] = getattr(ledger.rows, name)[live]
        arrays["row.cursors"] = ledger.rows.cursors[:, live].ravel()
        for group in ledger.layout.groups:
            table = ledger.tables[group.idx].reshape(-1, group.table_width)
            counts = table_counts(arrays["row.allocated"], group.page_size, group.table_width)
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
        for space_label in [name[5:] for name in arrays if name.startswith("free.")]:
            state = self._arrays[f"page.{space_label}.state"]
            live = np.flatnonzero((state != PageState.FREE) & (state != PageState.RESERVED))
            arrays[f"page.{space_label}.idx"] = live.astype(np.int32)
            for name in PAGE_COLUMNS:
                label = f"page.{space_label}.{name}"
                arrays[label] = _gather(self._arrays[label], live)
        meta = msgspec.msgpack.encode(self._meta)
        return FrozenState(arrays, meta, state_digest(arrays, meta))

    def release(self) -> None:
        """Give the buffers back; the snapshot is of no use after it."""
        self._staging.give_back(self._buffers)
        self._buffers = {}
        self._arrays = {}


def labelled_spaces(ledger: Ledger) -> list[tuple[str, PageSpace]]:
    """The page spaces with what their columns are called by: their index, or "host"."""
    labelled = [(str(idx), space) for idx, space in enumerate(ledger.spaces)]
    return labelled if ledger.host is None else [*labelled, ("host", ledger.host)]


def table_counts(allocated: Array, page_size: int, width: int) -> list[int]:
    """How many entries of each row's page table belong to its allocated length."""
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
