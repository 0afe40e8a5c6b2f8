"""Events as bytes: one encoder for each kind of field, and short cuts for the hot events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from kvlife.config import Layout
from kvlife.errors import EventError
from kvlife.events import (
    FIELDS,
    Admitted,
    Allocated,
    Committed,
    Event,
    FieldKind,
    Pinned,
    Released,
    Resumed,
    Retracted,
    RolledBack,
    SessionClosed,
    SessionRestored,
    SessionSaved,
    StepDispatched,
)
from kvlife.log.batches import Batch, BatchTable, LenTrail
from kvlife.log.ints import (
    I32,
    pack_ints,
    put_varint,
    quick_page_list,
    require_int32,
    varint,
    zigzag,
)
from kvlife.log.notes import Notes
from kvlife.log.wire import GROUP, MAX_GROUP, MAX_RUN, MAX_RUN_TOTAL

# Fields, as code and index, that name pages which an event takes from the free list.
_TAKEN = frozenset(
    (event_type.CODE, idx)
    for event_type, name in ((Allocated, "pages"), (Resumed, "restored"))
    for idx, field in enumerate(FIELDS[event_type])
    if field.name == name
)
_REQUESTS = {Admitted: "rid", Resumed: "rid", Released: "rid", Retracted: "rid"}
_REQUESTS |= {SessionSaved: "rid", SessionRestored: "rid", Pinned: "owner"}
_SESSIONS = frozenset({SessionSaved, SessionRestored, SessionClosed})
_MISUSE = (AttributeError, IndexError, OverflowError, TypeError, ValueError)


class Encoder:
    """Encodes groups of events; what it remembers of batches lasts until `reset`.

    `notes` is what the events named since they were last `handed_over`.
    """

    def __init__(self, layout: Layout) -> None:
        self._num_groups = len(layout.groups)
        self._num_windows = len(layout.window_groups)
        self._table = BatchTable()
        self.notes = Notes(self._num_groups)
        self._batch: Batch | None = None
        self._key = (0, 0)
        self._num_rows = 0
        self._run_left = 0
        self._event: Event | None = None
        self.quick: dict[type, Callable[[Any], bytes | None]] = {  # Any: each takes its own event
            Allocated: self._allocated,
            Committed: self._committed,
            StepDispatched: self._dispatched,
        }

    def reset(self) -> None:
        """Begin a stretch: whatever comes next can be read without what came before."""
        self._table.reset()

    @property
    def definitions(self) -> list[bytes]:
        """Bodies of the BATCH records that must stand before what was encoded last."""
        return self._table.definitions

    def take_definitions(self) -> list[bytes]:
        """The same, when they are written."""
        taken, self._table.definitions = self._table.definitions, []
        return taken

    def handed_over(self) -> None:
        """Begin the notes anew: somebody else has those made so far."""
        self.notes = Notes(self._num_groups)

    def group(self, events: Sequence[Event]) -> tuple[int, bytes]:
        """Kind and body of the record of a group that is not empty."""
        self._run_left = MAX_RUN_TOTAL
        self._table.named.clear()
        if len(events) == 1:
            out = bytearray()
            self._put_event(out, events[0])
            return events[0].CODE, bytes(out)
        if len(events) > MAX_GROUP:
            raise EventError(
                f"a group of {len(events)} events, at most {MAX_GROUP}: make it smaller"
            )
        whole = bytearray()
        put_varint(whole, len(events))
        for event in events:
            out = bytearray()
            self._put_event(out, event)
            whole.append(event.CODE)
            put_varint(whole, len(out))
            whole += out
        return GROUP, bytes(whole)

    def _put_event(self, out: bytearray, event: Event) -> None:
        plan = _PLANS.get(type(event))
        if plan is None:
            raise EventError(f"{type(event).__name__} is no event that a log can hold")
        self._event = event
        self._batch = None
        for idx, (field, put_field) in enumerate(plan):
            self._key = (event.CODE, idx)
            try:
                put_field(self, out, getattr(event, field.name))
            except _MISUSE as error:
                raise EventError(
                    f"{type(event).__name__}.{field.name} must be {field.kind.value}: {error}"
                ) from error
        if self._run_left < 0:
            raise EventError(f"a group that names more than {MAX_RUN_TOTAL} rows: make it smaller")
        self._note_ids(event)

    def _note_ids(self, event: Event) -> None:
        notes, kind = self.notes, type(event)
        rid = getattr(event, _REQUESTS[kind]) if kind in _REQUESTS else None
        if rid is not None:
            notes.requests.append(rid)
        if kind in _SESSIONS:
            notes.sessions.append(event.session_id)  # type: ignore[union-attr]  # these have one

    # The hot events. None means that the general way must be taken.

    def _allocated(self, event: Allocated) -> bytes | None:
        batch = self._table.by_id.get(id(event.rows))
        if batch is None or event.evicted_len is not None:
            return None
        trail = batch.allocated
        if trail is None or len(event.pages) != self._num_groups:
            return None
        pages = b""
        for listed in map(quick_page_list, event.pages, self.notes.taken):
            if listed is None:
                return None
            pages += listed
        return _lengths(trail, event.allocated_len) + pages + b"\0"

    def _committed(self, event: Committed) -> bytes | None:
        batch = self._table.by_id.get(id(event.rows))
        if batch is None or batch.committed is None:
            return None
        return _lengths(batch.committed, event.committed_len)

    def _dispatched(self, event: StepDispatched) -> bytes | None:
        batch = self._table.by_id.get(id(event.rows))
        if batch is None:
            return None
        return varint(event.step) + bytes((batch.slot + 1,))

    # One encoder for each kind of field.

    def _text(self, out: bytearray, value: str) -> None:
        content = value.encode()
        put_varint(out, len(content))
        out += content

    def _maybe_text(self, out: bytearray, value: str | None) -> None:
        if value is None:
            out.append(0)
            return
        content = value.encode()
        put_varint(out, len(content) + 1)
        out += content

    def _reason(self, out: bytearray, value: str) -> None:
        # A REASON stands in events that list theirs.
        out.append(type(self._event).REASONS.index(value))  # type: ignore[union-attr]

    def _flag(self, out: bytearray, value: bool) -> None:  # noqa: FBT001  # a field of an event
        out.append((False, True).index(value))

    def _unsigned(self, out: bytearray, value: int) -> None:
        if not 0 <= value < 1 << 64:
            raise ValueError(f"{value} is out of [0, 2^64)")
        put_varint(out, value)

    def _signed(self, out: bytearray, value: int) -> None:
        if not -(1 << 31) <= value < 1 << 31:
            raise ValueError(f"{value} is no int32")
        put_varint(out, zigzag(value))

    def _row(self, out: bytearray, value: int) -> None:
        self._unsigned(out, value)
        self.notes.rows.append(value.to_bytes(4, "little"))

    def _maybe_row(self, out: bytearray, value: int | None) -> None:
        if value is None:
            out.append(0)
            return
        if value < 0:
            raise ValueError(f"{value} is no row")
        self._unsigned(out, value + 1)
        self.notes.rows.append(value.to_bytes(4, "little"))

    def _rows(self, out: bytearray, value: I32) -> None:
        batch = self._batch = self._table.find(value)
        self._num_rows = value.size
        if batch is None:
            out.append(0)
            put_varint(out, value.size)
            if value.size:
                pack_ints(out, value, 0)
                self.notes.rows.append(value.tobytes())
        else:
            out.append(batch.slot + 1)
            self.notes.rows.append(batch.content)

    def _row_lengths(self, out: bytearray, value: I32) -> None:
        require_int32(value)
        if value.size != self._num_rows:
            raise ValueError(f"{value.size} lengths for {self._num_rows} rows")
        # A reader counts them twice where they stand as a run.
        self._run_left -= 2 * value.size
        batch = self._batch
        if batch is None:
            if value.size:
                pack_ints(out, value, MAX_RUN)
            return
        trail = batch.trails.get(self._key)
        if trail is None:
            trail = self._new_trail(batch, value)
        # The slot stands in the event already, as its rows.
        out += _lengths(trail, value)[1:]

    def _new_trail(self, batch: Batch, value: I32) -> LenTrail:
        base = batch.allocated
        start = np.zeros_like(value) if base is None else base.last
        trail = batch.trails[self._key] = LenTrail(batch.slot, start)
        if self._key == (Allocated.CODE, 1):
            batch.allocated = trail
        elif self._key == (Committed.CODE, 1):
            batch.committed = trail
        return trail

    def _page_list(self, out: bytearray, value: I32, noted: list[bytes]) -> None:
        quick = quick_page_list(value, noted)
        if quick is not None:
            out += quick
            return
        require_int32(value)
        put_varint(out, value.size)
        self._run_left -= pack_ints(out, value, self._run_left)
        noted.append(value.tobytes())

    def _pages(self, out: bytearray, value: Sequence[I32]) -> None:
        self._one_each(value, self._num_groups)
        noted = self.notes.taken if self._key in _TAKEN else self.notes.named
        for pages, group_noted in zip(value, noted, strict=True):
            self._page_list(out, pages, group_noted)

    def _group_pages(self, out: bytearray, value: I32) -> None:
        # GROUP_PAGES stand beside a GROUP.
        group: int = self._event.group  # type: ignore[union-attr]
        self._page_list(out, value, self.notes.named[group])

    def _host_pages(self, out: bytearray, value: I32) -> None:
        self._page_list(out, value, [])

    def _maybe_host_pages(self, out: bytearray, value: I32 | None) -> None:
        out.append(value is not None)
        if value is not None:
            self._page_list(out, value, [])

    def _keys(self, out: bytearray, value: Sequence[np.ndarray]) -> None:
        self._one_each(value, self._num_groups)
        for keys in value:
            self._digests(out, keys)

    def _digests(self, out: bytearray, value: np.ndarray) -> None:
        if value.dtype != np.uint64 or value.ndim != 1:
            raise TypeError(f"wanted uint64 of one dimension, got {value!r}")
        put_varint(out, value.size)
        out += value.tobytes()

    def _cursors(self, out: bytearray, value: Sequence[int]) -> None:
        self._one_each(value, self._num_windows)
        for cursor in value:
            self._signed(out, cursor)

    def _cursor_arrays(self, out: bytearray, value: Sequence[I32] | None) -> None:
        out.append(value is not None)
        if value is None:
            return
        self._one_each(value, self._num_windows)
        for cursors in value:
            require_int32(cursors)
            if cursors.size != self._num_rows:
                raise ValueError(f"{cursors.size} cursors for {self._num_rows} rows")
            self._run_left -= cursors.size
            if cursors.size:
                pack_ints(out, cursors, MAX_RUN)

    def _links(self, out: bytearray, value: np.ndarray) -> None:
        if value.dtype != np.int32 or value.ndim != 2 or value.shape[1] != 4:
            raise TypeError(f"wanted int32[k, 4], got {value!r}")
        put_varint(out, len(value))
        if len(value):
            for column in range(4):
                self._run_left -= pack_ints(out, value[:, column], self._run_left)
            self._note_links(value)

    def _note_links(self, links: np.ndarray) -> None:
        """A link is (group, ..., page, page); a copy's second page is taken."""
        copies = isinstance(self._event, RolledBack)
        for group in set(links[:, 0].tolist()):
            pages = links[links[:, 0] == group, 2:]
            self.notes.named[group].append(pages.tobytes())
            if copies:
                self.notes.taken[group].append(pages[:, 1].tobytes())

    @staticmethod
    def _one_each(value: Sequence[object], wanted: int) -> None:
        if len(value) != wanted:
            raise ValueError(f"{len(value)} entries for {wanted} groups")

    by_kind: ClassVar[dict[FieldKind, Callable[[Any, bytearray, Any], None]]] = {  # Any: by kind
        FieldKind.TEXT: _text,
        FieldKind.MAYBE_TEXT: _maybe_text,
        FieldKind.REASON: _reason,
        FieldKind.FLAG: _flag,
        FieldKind.COUNT: _unsigned,
        FieldKind.U64: _unsigned,
        FieldKind.LENGTH: _signed,
        FieldKind.ROW: _row,
        FieldKind.MAYBE_ROW: _maybe_row,
        FieldKind.GROUP: _unsigned,
        FieldKind.SPACE: _unsigned,
        FieldKind.ROWS: _rows,
        FieldKind.LENGTHS: _row_lengths,
        FieldKind.PAGES: _pages,
        FieldKind.GROUP_PAGES: _group_pages,
        FieldKind.DIGESTS: _digests,
        FieldKind.HOST_PAGES: _host_pages,
        FieldKind.MAYBE_HOST_PAGES: _maybe_host_pages,
        FieldKind.KEYS: _keys,
        FieldKind.CURSORS: _cursors,
        FieldKind.CURSOR_ARRAYS: _cursor_arrays,
        FieldKind.LINKS: _links,
    }


# By event, its fields and what puts each; enums are slow as keys.
_PLANS = {
    event_type: tuple((field, Encoder.by_kind[field.kind]) for field in fields)
    for event_type, fields in FIELDS.items()
}


def _lengths(trail: LenTrail, lengths: I32) -> bytes:
    np.add(trail.last, trail.stride, trail.last)
    if trail.last.tobytes() == lengths.tobytes() and lengths.dtype is trail.last.dtype:
        return trail.code
    return trail.moved_to(lengths)
