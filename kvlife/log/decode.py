"""Bytes as events: the inverse of `encode`, trusting nothing, with short cuts for the hot ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from kvlife.config import Layout, with_pages
from kvlife.errors import EventError
from kvlife.events import (
    BY_CODE,
    FIELDS,
    Allocated,
    Committed,
    Event,
    FieldKind,
    Resized,
    StepDispatched,
    StepSettled,
    check_decoded,
)
from kvlife.log.cursor import BadBytes, Cursor
from kvlife.log.ints import I32, from_planes
from kvlife.log.wire import GROUP, LAST_EVENT_CODE, MAX_GROUP, NUM_SLOTS, ONES

_ALLOCATED = (Allocated.CODE, 1)
_COMMITTED = (Committed.CODE, 1)
_ALL_PAGES = 1 << 31
_MAX_VARINT_BYTES = 10


class UnknownEvent:
    """An event of a kind that this version does not know: its code and how many bytes it takes."""

    __slots__ = ("code", "size_bytes")

    def __init__(self, code: int, size_bytes: int) -> None:
        self.code = code
        self.size_bytes = size_bytes

    def __repr__(self) -> str:
        return f"UnknownEvent(code={self.code}, size_bytes={self.size_bytes})"


class _Batch:
    __slots__ = ("ones", "rows", "trails")

    def __init__(self, rows: I32) -> None:
        self.rows = rows
        self.ones: I32 = np.ones_like(rows)
        self.trails: dict[tuple[int, int], I32] = {}


class Decoder:
    """Decodes groups in the order in which they were written, within one stretch.

    `layout` is that of the pools where it begins; it grows with them. What does not fit pools that
    have shrunk is left to whoever folds the events.
    """

    def __init__(self, layout: Layout) -> None:
        self._num_groups = len(layout.groups)
        self._num_windows = len(layout.window_groups)
        self._hold_to(layout)
        self._slots: list[_Batch | None] = [None] * NUM_SLOTS
        self._batch: _Batch | None = None
        self._key = (0, 0)
        self._num_rows = 0
        self._event_type: type[Event] = Allocated
        self.unknown: list[int] = []
        self._quick: dict[int, Callable[[bytes, int, int], Event | None]] = {
            Allocated.CODE: self._allocated,
            Committed.CODE: self._committed,
            StepDispatched.CODE: self._dispatched,
            StepSettled.CODE: self._settled,
        }

    def reset(self) -> None:
        """Begin a stretch."""
        self._slots = [None] * NUM_SLOTS

    def widen(self) -> None:
        """Take any page id from here on: what size the pools have is not known."""
        self._hold_to(widest(self._layout))

    def _hold_to(self, layout: Layout) -> None:
        self._layout = layout
        self._num_pages = tuple(layout.spaces[group.space_idx].num_pages for group in layout.groups)

    def define(self, content: bytes, pos: int, end: int) -> None:
        """Take up a BATCH record."""
        cursor = Cursor(content, pos, end)
        slot = cursor.byte()
        if slot >= NUM_SLOTS:
            raise BadBytes(f"batch slot {slot}, there are {NUM_SLOTS}")
        num, num_rows = cursor.varint(), self._layout.num_rows
        if not 0 < num <= num_rows:
            raise BadBytes(f"a batch of {num} rows, there are {num_rows}")
        rows = cursor.ints(num)
        _whole(cursor)
        # As unsigned numbers the negative ones are the highest.
        if int(rows.view(np.uint32).max()) >= num_rows or int(np.bincount(rows).max()) > 1:
            raise BadBytes(f"a batch whose rows are not in [0, {num_rows}), each once")
        self._slots[slot] = _Batch(rows)

    def group(self, kind: int, content: bytes, pos: int, end: int) -> list[Event | UnknownEvent]:
        """The events of a record of kind GROUP, or of the one event whose code `kind` is."""
        quick = self._quick.get(kind)
        if quick is not None:
            event = quick(content, pos, end)
            if event is not None:
                return [event]
        cursor = Cursor(content, pos, end)
        if kind != GROUP:
            return [self._event(kind, cursor)]
        events: list[Event | UnknownEvent] = []
        num = cursor.varint()
        if num > MAX_GROUP:
            raise BadBytes(f"a group of {num} events, at most {MAX_GROUP}")
        for _ in range(num):
            code = cursor.byte()
            if not 0 < code <= LAST_EVENT_CODE:
                raise BadBytes(f"no event has the code {code}")
            size = cursor.varint()
            start = cursor.take(size)
            cursor.pos, cursor.end = start, start + size
            events.append(self._event(code, cursor))
            cursor.end = end
        if len(events) < 2:
            raise BadBytes(f"a group of {num} events stands as a single one, or not at all")
        _whole(cursor)
        return events

    def _event(self, code: int, cursor: Cursor) -> Event | UnknownEvent:
        event_type = BY_CODE.get(code)
        if event_type is None:
            size = cursor.end - cursor.pos
            cursor.pos = cursor.end
            self.unknown.append(code)
            return UnknownEvent(code, size)
        self._event_type = event_type
        self._batch = None
        values = []
        for idx, take_field in enumerate(_PLANS[event_type]):
            self._key = (code, idx)
            values.append(take_field(self, cursor))
        _whole(cursor)
        event = event_type(*values)
        try:
            check_decoded(event, self._layout, self._known_rows())
        except EventError as error:
            raise BadBytes(str(error)) from error
        if isinstance(event, Resized):
            most = max(event.num_pages, self._layout.spaces[event.space].num_pages)
            self._hold_to(with_pages(self._layout, {event.space: most}))
        return event

    def _known_rows(self) -> I32 | None:
        """Rows that were looked at when their batch was defined."""
        return None if self._batch is None else self._batch.rows

    # The hot events. None means that the general way must be taken.

    def _allocated(self, content: bytes, pos: int, end: int) -> Allocated | None:
        if end - pos < 4 or content[pos + 1] != ONES or content[end - 1]:
            return None
        ref = content[pos]
        batch = self._slots[ref - 1] if 0 < ref <= NUM_SLOTS else None
        last = batch.trails.get(_ALLOCATED) if batch is not None else None
        if batch is None or last is None:
            return None
        pages: list[I32] = []
        pos += 2
        for num_pages in self._num_pages:
            if pos >= end:
                return None
            num, pos = content[pos], pos + 1
            if not num:
                pages.append(_NONE)
                continue
            if num > 0x7F:
                num, pos = num & 0x7F | content[pos] << 7, pos + 1
                if not 1 << 7 <= num < 1 << 14:
                    return None
            width = content[pos]
            # A width that can name no page out of range needs no look at the values.
            if 1 <= width <= 2 and pos + 1 + num * width < end:
                listed = from_planes(content, pos + 1, num, width)
                pos += 1 + num * width
            else:
                cursor = Cursor(content, pos, end)
                listed, pos = cursor.ints(num), cursor.pos
                width = 4
            if num_pages < 1 << (8 * width) and not _in_range(listed, num_pages):
                return None
            pages.append(listed)
        if pos + 1 != end:
            return None
        lengths = last + batch.ones
        lengths.setflags(write=False)
        batch.trails[_ALLOCATED] = lengths
        return Allocated(batch.rows, lengths, tuple(pages))

    def _committed(self, content: bytes, pos: int, end: int) -> Committed | None:
        if end - pos != 2 or content[pos + 1] != ONES or not 0 < content[pos] <= NUM_SLOTS:
            return None
        batch = self._slots[content[pos] - 1]
        last = batch.trails.get(_COMMITTED) if batch is not None else None
        if batch is None or last is None:
            return None
        lengths = last + batch.ones
        lengths.setflags(write=False)
        batch.trails[_COMMITTED] = lengths
        return Committed(batch.rows, lengths)

    def _dispatched(self, content: bytes, pos: int, end: int) -> StepDispatched | None:
        """A step of a batch, whose rows were looked at when it was defined."""
        ref = content[end - 1]
        batch = self._slots[ref - 1] if 0 < ref <= NUM_SLOTS else None
        step = _sole_varint(content, pos, end - 1)
        return None if batch is None or step is None else StepDispatched(step, batch.rows)

    def _settled(self, content: bytes, pos: int, end: int) -> StepSettled | None:
        """A step with which no row drained: no rows, and no pages in any group."""
        num = self._num_groups
        behind = end - 2 - num
        if content[behind:end] != bytes(2 + num):
            return None
        step = _sole_varint(content, pos, behind)
        return None if step is None else StepSettled(step, _NONE, (_NONE,) * num)

    # One decoder for each kind of field.

    def _text(self, cursor: Cursor) -> str:
        return _utf8(cursor, cursor.varint())

    def _maybe_text(self, cursor: Cursor) -> str | None:
        size = cursor.varint()
        return _utf8(cursor, size - 1) if size else None

    def _reason(self, cursor: Cursor) -> str:
        # A REASON stands in events that list theirs.
        reasons: tuple[str, ...] = self._event_type.REASONS  # type: ignore[union-attr]
        idx = cursor.byte()
        if idx >= len(reasons):
            raise BadBytes(f"reason {idx} of {len(reasons)}")
        return reasons[idx]

    def _maybe_row(self, cursor: Cursor) -> int | None:
        value = cursor.varint()
        return value - 1 if value else None

    def _rows(self, cursor: Cursor) -> I32:
        ref = cursor.byte()
        if ref == 0:
            rows = cursor.ints(cursor.varint())
        else:
            batch = self._batch = self._slots[ref - 1] if ref <= NUM_SLOTS else None
            if batch is None:
                raise BadBytes(f"batch slot {ref - 1} was not defined")
            rows = batch.rows
        self._num_rows = rows.size
        return rows

    def _row_lengths(self, cursor: Cursor) -> I32:
        batch = self._batch
        if batch is None:
            return cursor.ints(self._num_rows)
        cursor.spend(self._num_rows)
        rise = cursor.ints(self._num_rows)
        last = batch.trails.get(self._key)
        if last is None:
            last = batch.trails.get(_ALLOCATED)
        if last is not None:
            rise = last + rise
            rise.setflags(write=False)
        batch.trails[self._key] = rise
        return rise

    def _page_list(self, cursor: Cursor) -> I32:
        return cursor.ints(cursor.varint())

    def _pages(self, cursor: Cursor) -> tuple[I32, ...]:
        return tuple(cursor.ints(cursor.varint()) for _ in range(self._num_groups))

    def _maybe_pages(self, cursor: Cursor) -> I32 | None:
        return cursor.ints(cursor.varint()) if cursor.flag() else None

    def _keys(self, cursor: Cursor) -> tuple[np.ndarray, ...]:
        return tuple(self._digests(cursor) for _ in range(self._num_groups))

    def _digests(self, cursor: Cursor) -> np.ndarray:
        num = cursor.varint()
        return np.frombuffer(cursor.content, np.uint64, num, cursor.take(8 * num))

    def _cursors(self, cursor: Cursor) -> tuple[int, ...]:
        return tuple(cursor.int32() for _ in range(self._num_windows))

    def _cursor_arrays(self, cursor: Cursor) -> tuple[I32, ...] | None:
        if not cursor.flag():
            return None
        return tuple(cursor.ints(self._num_rows) for _ in range(self._num_windows))

    def _links(self, cursor: Cursor) -> I32:
        num = cursor.varint()
        if not num:
            return _NO_LINKS
        links: I32 = np.stack([cursor.ints(num) for _ in range(4)], axis=1)
        links.setflags(write=False)
        return links

    by_kind: ClassVar[dict[FieldKind, Callable[[Any, Cursor], Any]]] = {  # Any: by kind
        FieldKind.TEXT: _text,
        FieldKind.MAYBE_TEXT: _maybe_text,
        FieldKind.REASON: _reason,
        FieldKind.FLAG: lambda _decoder, cursor: cursor.flag(),
        FieldKind.COUNT: lambda _decoder, cursor: cursor.varint(),
        FieldKind.U64: lambda _decoder, cursor: cursor.varint(),
        FieldKind.LENGTH: lambda _decoder, cursor: cursor.int32(),
        FieldKind.ROW: lambda _decoder, cursor: cursor.varint(),
        FieldKind.MAYBE_ROW: _maybe_row,
        FieldKind.GROUP: lambda _decoder, cursor: cursor.varint(),
        FieldKind.SPACE: lambda _decoder, cursor: cursor.varint(),
        FieldKind.ROWS: _rows,
        FieldKind.LENGTHS: _row_lengths,
        FieldKind.PAGES: _pages,
        FieldKind.GROUP_PAGES: _page_list,
        FieldKind.DIGESTS: _digests,
        FieldKind.HOST_PAGES: _page_list,
        FieldKind.MAYBE_HOST_PAGES: _maybe_pages,
        FieldKind.KEYS: _keys,
        FieldKind.CURSORS: _cursors,
        FieldKind.CURSOR_ARRAYS: _cursor_arrays,
        FieldKind.LINKS: _links,
    }


# By event, what takes each of its fields; enums are slow as keys.
_PLANS = {
    event_type: tuple(Decoder.by_kind[field.kind] for field in fields)
    for event_type, fields in FIELDS.items()
}
_NONE: I32 = np.empty(0, np.int32)
_NONE.setflags(write=False)
_NO_LINKS: I32 = np.empty((0, 4), np.int32)
_NO_LINKS.setflags(write=False)


def widest(layout: Layout) -> Layout:
    """The layout with spaces of as many pages as ids can name."""
    return with_pages(layout, {space.idx: _ALL_PAGES for space in layout.spaces})


def _in_range(pages: I32, num_pages: int) -> bool:
    return 0 <= int(pages.min()) and int(pages.max()) < num_pages


def _sole_varint(content: bytes, pos: int, end: int) -> int | None:
    """The number below 2^63 that the bytes from `pos` to `end` write; None where they do not."""
    if end - pos > _MAX_VARINT_BYTES:
        return None
    value = shift = 0
    while pos < end:
        byte = content[pos]
        value |= (byte & 0x7F) << shift
        pos, shift = pos + 1, shift + 7
        if byte < 0x80:
            return value if pos == end and value < 1 << 63 else None
    return None


def _whole(cursor: Cursor) -> None:
    if cursor.pos != cursor.end:
        raise BadBytes(f"{cursor.end - cursor.pos} bytes are left over behind the last field")


def _utf8(cursor: Cursor, size: int) -> str:
    pos = cursor.take(size)
    try:
        return cursor.content[pos : pos + size].decode()
    except UnicodeDecodeError as error:
        raise BadBytes(f"a text that is no UTF-8 ({error.reason})") from error
