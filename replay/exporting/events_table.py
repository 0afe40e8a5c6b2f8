"""The table of events: a row for each, and a column for each field that some kind of event has."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np

from kvlife.config import Layout
from kvlife.events import FIELDS, Event, Field, FieldKind, Recorded
from kvlife.log import UnknownEvent
from kvlife.replay.exporting.columns import Column, Kind
from kvlife.replay.output.event_words import kind_of

_HEAD = (
    Column("seq", Kind.UINT64, "the number of the event, from 0"),
    Column("step", Kind.INT64, "the step of the engine"),
    Column("time_ns", Kind.INT64, "the time of the event"),
    Column("event", Kind.NAME, "the kind of event"),
)
# Fields whose names say something else in another kind of event, or in the envelope.
_NAMES = {
    ("StepDispatched", "step"): "of_step",
    ("StepSettled", "step"): "of_step",
    ("Violated", "seq"): "of_seq",
    ("Pinned", "kind"): "pin_kind",
}
_KINDS = {
    FieldKind.TEXT: Kind.TEXT,
    FieldKind.MAYBE_TEXT: Kind.TEXT,
    FieldKind.REASON: Kind.NAME,
    FieldKind.FLAG: Kind.FLAG,
    FieldKind.COUNT: Kind.UINT64,
    FieldKind.U64: Kind.UINT64,
    FieldKind.LENGTH: Kind.INT32,
    FieldKind.ROW: Kind.INT32,
    FieldKind.MAYBE_ROW: Kind.INT32,
    FieldKind.GROUP: Kind.NAME,
    FieldKind.SPACE: Kind.NAME,
    FieldKind.ROWS: Kind.INT32S,
    FieldKind.LENGTHS: Kind.INT32S,
    FieldKind.PAGES: Kind.INT32S,
    FieldKind.GROUP_PAGES: Kind.INT32S,
    FieldKind.DIGESTS: Kind.UINT64S,
    FieldKind.HOST_PAGES: Kind.INT32S,
    FieldKind.MAYBE_HOST_PAGES: Kind.INT32S,
    FieldKind.KEYS: Kind.UINT64S,
    FieldKind.CURSORS: Kind.INT32S,
    FieldKind.CURSOR_ARRAYS: Kind.INT32S,
    FieldKind.LINKS: Kind.INT32S,
}
_OF_ONE_GROUP = (FieldKind.GROUP_PAGES, FieldKind.DIGESTS)
_PER_GROUP = (FieldKind.PAGES, FieldKind.KEYS, *_OF_ONE_GROUP)
_PER_WINDOW = (FieldKind.CURSORS, FieldKind.CURSOR_ARRAYS)


def events_columns(layout: Layout) -> list[Column]:
    """The columns for a run; what there is once a group has a column for each."""
    columns = {column.name: column for column in _HEAD}
    meanings: dict[str, dict[str, list[str]]] = {}
    for kind, fields in FIELDS.items():
        for field in fields:
            for name in _columns_of(kind, field, layout):
                columns[name] = Column(name, _KINDS[field.kind], "")
                meanings.setdefault(name, {}).setdefault(field.doc, []).append(kind.__name__)
    for name, by_doc in meanings.items():
        columns[name] = attrs.evolve(columns[name], doc=_meaning(by_doc))
    return list(columns.values())


def _meaning(by_doc: dict[str, list[str]]) -> str:
    """A meaning with the kinds of events that have it; the kinds alone where it differs."""
    kinds = ", ".join(kind for kinds in by_doc.values() for kind in kinds)
    return f"{next(iter(by_doc))} ({kinds})" if len(by_doc) == 1 else f"as each has it ({kinds})"


def _columns_of(kind: type[Event], field: Field, layout: Layout) -> list[str]:
    name = _NAMES.get((kind.__name__, field.name), field.name)
    if field.kind in _PER_GROUP:
        return [f"{name}_{group.name}" for group in layout.groups]
    if field.kind in _PER_WINDOW or field.name == "evicted_len":
        return [f"{name}_{group.name}" for group in layout.window_groups]
    return [name]


class EventRows:
    """Makes a row of each event."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._columns = {
            (kind, field.name): _columns_of(kind, field, layout)
            for kind, fields in FIELDS.items()
            for field in fields
        }

    def row(self, item: Recorded) -> dict[str, object]:
        """The row of an event: what it has, by column."""
        event: Event | UnknownEvent = item.event
        row: dict[str, object] = {
            "seq": item.seq,
            "step": item.step,
            "time_ns": item.time_ns,
            "event": kind_of(event),
        }
        if not isinstance(event, UnknownEvent):
            for field in FIELDS[type(event)]:
                row.update(self._values(event, field))
        return row

    def _values(self, event: Event, field: Field) -> Iterator[tuple[str, object]]:
        value = getattr(event, field.name)
        names = self._columns[type(event), field.name]
        if field.kind in (FieldKind.PAGES, FieldKind.KEYS, FieldKind.CURSOR_ARRAYS):
            yield from zip(names, value or (), strict=False)
        elif field.kind is FieldKind.CURSORS:
            lists = ([cursor] for cursor in value)
            yield from zip(names, (np.array(one, np.int32) for one in lists), strict=False)
        elif field.kind in _OF_ONE_GROUP:
            yield names[event.group], value  # type: ignore[union-attr]  # stands beside a GROUP
        elif field.name == "evicted_len":
            window = self._layout.groups[event.group].window_idx  # type: ignore[union-attr]  # too
            if window is not None:
                yield names[window], value
        elif field.kind is FieldKind.LINKS:
            yield names[0], value.reshape(-1)
        elif field.kind is FieldKind.GROUP:
            yield names[0], self._layout.groups[value].name
        elif field.kind is FieldKind.SPACE:
            yield names[0], self._layout.spaces[value].name
        else:
            yield names[0], value
