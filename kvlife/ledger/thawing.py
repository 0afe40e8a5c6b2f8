"""From a frozen state back to a ledger. A log may be hostile, so all that it holds is checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import numpy as np
import numpy.typing as npt

from kvlife.config import MAX_LEN, MAX_PAGES, refuse_beyond_memory
from kvlife.errors import ConfigError, LogCorrupt
from kvlife.ledger.books import OpenStep, Pin, Session, Waiting
from kvlife.ledger.rows import RowState
from kvlife.ledger.snapshot import (
    PAGE_COLUMNS,
    ROW_COLUMNS,
    FrozenState,
    labelled_spaces,
    state_digest,
    table_counts,
)
from kvlife.ledger.spaces import PageState
from kvlife.ledger.spans import spans_of

if TYPE_CHECKING:
    from kvlife.ledger.ledger import Ledger
    from kvlife.ledger.spaces import PageSpace

Array = npt.NDArray[Any]  # Any: columns of every dtype

_INT32 = (-(1 << 31), 1 << 31)
_COUNTS = (0, 1 << 63)
_U64 = (0, 1 << 64)
_MAX_STAMP = 1 << 32


class Books(msgspec.Struct, forbid_unknown_fields=True):
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
    """Fill an empty ledger; raises `LogCorrupt` where the state is none that it could be in.

    Events can be folded onto whatever passes, as onto every state that events lead to.
    """
    if state_digest(state.arrays, state.meta) != state.digest:
        raise LogCorrupt("the snapshot does not have the digest it names: start from another one")
    try:
        books = msgspec.msgpack.decode(state.meta, type=Books)
        _thaw_seqs(ledger, books)
        _thaw_pages(ledger, state, books)
        _thaw_rows(ledger, state, books)
        _thaw_requests(ledger, books)
        _thaw_pins(ledger, books)
    except (msgspec.MsgspecError, ConfigError, ValueError) as error:
        raise LogCorrupt(f"the snapshot does not fit its header: {error}") from error
    if ledger.digest() != state.digest:
        raise LogCorrupt("the snapshot holds more than a state, or in another order: start earlier")


def _thaw_seqs(ledger: Ledger, books: Books) -> None:
    _within("the next seq", [books.next_seq], _COUNTS)
    _within("the base of the seqs", [books.seq_base], (0, books.next_seq + 1))
    _within("the next seq from its base", [books.next_seq - books.seq_base], (0, _MAX_STAMP))
    ledger.next_seq, ledger.seq_base = books.next_seq, books.seq_base


def _thaw_pages(ledger: Ledger, state: FrozenState, books: Books) -> None:
    if len(books.spaces) != len(ledger.spaces):
        raise ValueError(f"{len(books.spaces)} page spaces for {len(ledger.spaces)}")
    for space_idx, num_pages in enumerate(books.spaces):
        _check_pages(state, str(space_idx), num_pages)
        if num_pages != ledger.spaces[space_idx].num_pages:
            _resize(ledger, space_idx, num_pages)
    if ledger.host is not None:
        _check_pages(state, "host", ledger.host.num_pages)
    for label, space in labelled_spaces(ledger):
        _thaw_space(ledger, state, label, space)


def _check_pages(state: FrozenState, label: str, num_pages: int) -> None:
    """Used and free pages together are all, each once: a number of pages comes with its bytes."""
    live = _column(state, f"page.{label}.idx", np.int32)
    free = _column(state, f"free.{label}", np.int32)
    if live.size + free.size != num_pages - 1:
        raise ValueError(f"{live.size} pages in use and {free.size} free ones of {num_pages}")
    _each_once(f"pages of space {label}", np.concatenate([live, free]), num_pages)


def _thaw_space(ledger: Ledger, state: FrozenState, label: str, space: PageSpace) -> None:
    live = _column(state, f"page.{label}.idx", np.int32)
    for name in PAGE_COLUMNS:
        column = getattr(space, name)
        column[live] = _column(state, f"page.{label}.{name}", column.dtype, live.size)
    in_use = (int(PageState.PRIVATE), int(PageState.QUARANTINED) + 1)
    _within("the state of a page in use", space.state[live], in_use)
    _within("the group of a page", space.group[live], (0, len(ledger.tables)))
    # A parent may have been evicted before its child, and gone with a shrink since; a host page
    # has the index of a page table there.
    bound = MAX_LEN if space is ledger.host else MAX_PAGES
    _within("the parent of a page", space.link[live], (0, bound))
    for name in ("refs", "pins"):
        _within(f"the {name} of a page", getattr(space, name)[live], (0, 1 << 31))
    space.free.start = space.free.num_free = 0
    free = _column(state, f"free.{label}", np.int32)
    if not space.free.put_back(free if space.free.fifo else free[::-1]):
        raise ValueError("a page stands twice in the free list")


def _resize(ledger: Ledger, space_idx: int, num_pages: int) -> None:
    _within("the pages of a space", [num_pages], (1, MAX_PAGES + 1))
    spaces = list(ledger.layout.spaces)
    spaces[space_idx] = attrs.evolve(spaces[space_idx], num_pages=num_pages)
    refuse_beyond_memory(attrs.evolve(ledger.layout, spaces=tuple(spaces)))
    ledger.resize(space_idx, num_pages)


def _thaw_rows(ledger: Ledger, state: FrozenState, books: Books) -> None:
    rows, num_rows = ledger.rows, ledger.layout.num_rows
    live = _column(state, "row.idx", np.int32)
    _each_once("rows", live, num_rows)
    rows.state[live] = _column(state, "row.state", np.uint8, live.size)
    in_use = (int(RowState.HELD), int(RowState.DRAINING) + 1)
    _within("the state of a row in use", rows.state[live], in_use)
    rows.generation[:] = _column(state, "row.generation", np.uint32, num_rows)
    for name in ROW_COLUMNS:
        column = getattr(rows, name)
        column[live] = _column(state, f"row.{name}", column.dtype, live.size)
    cursors = _column(state, "row.cursors", np.int32, rows.cursors.shape[0] * live.size)
    rows.cursors[:, live] = cursors.reshape(len(rows.cursors), live.size)
    for row, (holder, session) in zip(live.tolist(), books.holders, strict=True):
        rows.rid[row], rows.session[row] = holder, session
        if holder is not None:
            ledger.requests[holder] = row
    for group in ledger.layout.groups:
        counts = np.array(
            table_counts(rows.allocated[live], group.page_size, group.table_width), np.int32
        )
        at = spans_of(live.astype(np.intp) * group.table_width, np.zeros_like(counts), counts)
        pages = _column(state, f"table.{group.idx}", np.int32, at.size)
        _pages(ledger, group.idx, pages)
        ledger.tables[group.idx][at] = pages


def _thaw_requests(ledger: Ledger, books: Books) -> None:
    for rid, prompt_len, committed_len, namespace, backup, seq in books.waiting:
        _within(f"a length of the waiting request {rid!r}", [prompt_len, committed_len], _INT32)
        _within("a namespace", [namespace], _U64)
        _within("a seq", [seq], _COUNTS)
        _within("a host page", backup or [], (0, ledger.layout.host_pages or _INT32[1]))
        ledger.waiting[rid] = Waiting(
            prompt_len=prompt_len,
            committed_len=committed_len,
            namespace=namespace,
            backup=None if backup is None else np.array(backup, np.int32),
            seq=seq,
        )
    for sid, row, runs, kept_len, protected_len, num_turns, seq in books.sessions:
        _within(f"the row of session {sid!r}", [row], (0, ledger.layout.num_rows))
        _within(f"a length of session {sid!r}", [kept_len, protected_len], _INT32)
        _within(f"a count of session {sid!r}", [num_turns, seq], _COUNTS)
        ledger.sessions[sid] = Session(
            row=row,
            rid=runs,
            kept_len=kept_len,
            protected_len=protected_len,
            num_turns=num_turns,
            seq=seq,
        )


def _thaw_pins(ledger: Ledger, books: Books) -> None:
    for pin_id, kind, writes, owner, group, pages, seq in books.pins:
        _within("a seq", [seq], _COUNTS)
        ledger.pins[pin_id] = Pin(
            kind=kind,
            writes=writes,
            owner=owner,
            group=group,
            pages=_pages(ledger, group, pages),
            seq=seq,
            time_ns=0,
        )
    for step, rows, noted, seq, pinned in books.steps:
        _within("a step, or its seq", [step, seq], _COUNTS)
        _within(f"a row of step {step}", rows, (0, ledger.layout.num_rows))
        _within(f"a length of step {step}", noted, _INT32)
        if len(rows) != len(set(rows)) or len(rows) != len(noted):
            raise ValueError(f"step {step} names {len(rows)} rows and {len(noted)} lengths")
        opened = OpenStep(np.array(rows, np.intp), np.array(noted, np.int32), seq)
        opened.pinned = [(group, _pages(ledger, group, pages)) for group, pages in pinned]
        ledger.steps[step] = opened


def _column(state: FrozenState, name: str, dtype: npt.DTypeLike, num: int | None = None) -> Array:
    array = state.arrays.get(name)
    if array is None:
        raise ValueError(f"no column {name!r}")
    if array.dtype != dtype or array.ndim != 1:
        raise ValueError(f"column {name!r} holds {array.dtype} in {array.ndim} dimensions")
    if num is not None and array.size != num:
        raise ValueError(f"column {name!r} has {array.size} entries for {num}")
    return array


def _pages(ledger: Ledger, group: int, pages: Array | list[int]) -> Array:
    _within("a group", [group], (0, len(ledger.layout.groups)))
    space = ledger.spaces[ledger.layout.groups[group].space_idx]
    _within(f"a page of group {group}", pages, (0, space.num_pages))
    return np.asarray(pages, np.int32)


def _each_once(what: str, ids: Array, bound: int) -> None:
    _within(f"one of the {what}", ids, (1, bound))
    # Counting is a hundredth of the work of `np.unique`; the ids' bound is that of their columns.
    if np.bincount(ids, minlength=1).max() > 1:
        raise ValueError(f"one of the {what} stands twice")


def _within(what: str, values: Array | Iterable[int], bounds: tuple[int, int]) -> None:
    """Raise `ValueError` where a value is out of [low, high)."""
    low, high = bounds
    if isinstance(values, np.ndarray):
        values = (int(values.min()), int(values.max())) if values.size else ()
    for value in values:
        if not low <= value < high:
            raise ValueError(f"{what} is {value}, out of [{low}, {high})")
