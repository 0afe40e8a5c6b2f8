"""A frozen state under other names: what it says of ids, namespaces and page keys is replaced."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from kvlife.errors import LogCorrupt
from kvlife.ledger.snapshot import FrozenState, state_digest
from kvlife.ledger.thawing import Books

U64 = npt.NDArray[np.uint64]


class Names(Protocol):
    """Gives new names; equal ones stay equal, different ones different, and 0 stays 0."""

    def request(self, rid: str) -> str:
        """For a request id."""

    def session(self, session_id: str) -> str:
        """For a session id."""

    def pin(self, pin_id: str) -> str:
        """For a pin id."""

    def pin_kind(self, kind: str) -> str:
        """For what a pin is said to be."""

    def numbers(self, numbers: U64) -> U64:
        """For namespaces or page keys."""


def renamed(state: FrozenState, names: Names) -> FrozenState:
    """The same state under other names, with its own digest.

    A state that did not have the digest it names does not have the new one either. Raises
    `LogCorrupt` where the books cannot be read.
    """
    arrays = {
        name: names.numbers(_as_keys(name, array)) if _is_named(name) else array
        for name, array in state.arrays.items()
    }
    try:
        books = msgspec.msgpack.decode(state.meta, type=Books)
    except msgspec.MsgspecError as error:
        raise LogCorrupt(f"the books of a snapshot cannot be read: {error}") from error
    meta = msgspec.msgpack.encode(_books(books, names))
    amiss = state.digest ^ state_digest(state.arrays, state.meta)
    return FrozenState(arrays, meta, state_digest(arrays, meta) ^ amiss)


def _is_named(column: str) -> bool:
    return column == "row.namespace" or (column.startswith("page.") and column.endswith(".key"))


def _as_keys(name: str, array: npt.NDArray[Any]) -> U64:  # Any: a file may hold any dtype
    if array.dtype != np.uint64 or array.ndim != 1:
        raise LogCorrupt(f"the column {name} of a snapshot holds {array.dtype}, not uint64")
    return array


def _books(books: Books, names: Names) -> dict[str, object]:
    def request(rid: str | None) -> str | None:
        return None if rid is None else names.request(rid)

    def session(session_id: str | None) -> str | None:
        return None if session_id is None else names.session(session_id)

    def namespace(number: int) -> int:
        return int(names.numbers(np.array([number], np.uint64))[0])

    return {
        "next_seq": books.next_seq,
        "seq_base": books.seq_base,
        "spaces": books.spaces,
        "holders": [[request(rid), session(sid)] for rid, sid in books.holders],
        # In the order of the new names, as a ledger of these names would write them.
        "waiting": sorted(
            [names.request(rid), prompt_len, committed_len, namespace(number), *rest]
            for rid, prompt_len, committed_len, number, *rest in books.waiting
        ),
        "sessions": sorted(
            [names.session(sid), row, request(rid), *rest]
            for sid, row, rid, *rest in books.sessions
        ),
        "pins": sorted(
            [names.pin(pid), names.pin_kind(kind), writes, request(owner), *rest]
            for pid, kind, writes, owner, *rest in books.pins
        ),
        "steps": books.steps,
    }
