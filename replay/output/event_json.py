"""An event as one JSON object: its envelope, its kind, and its fields with whole arrays."""

from __future__ import annotations

import numpy as np

from kvlife.config import Layout
from kvlife.events import FIELDS, FieldKind, Recorded
from kvlife.log import UnknownEvent
from kvlife.replay.output.event_words import kind_of


def item_json(item: Recorded | None) -> dict[str, object] | None:
    """Where an event stands in its log, and of which kind it is; None for none."""
    return None if item is None else _envelope(item)


def event_json(item: Recorded, layout: Layout) -> dict[str, object]:
    """Fields under their own names; what there is once a group is an object by group's name.

    Numbers of 64 bits (namespace, page keys) are hexadecimal text, as JSON readers round them.
    """
    event: object = item.event
    found = _envelope(item)
    if isinstance(event, UnknownEvent):
        return found | {"code": event.code, "size_bytes": event.size_bytes}
    groups = [group.name for group in layout.groups]
    windows = [group.name for group in layout.window_groups]
    fields: dict[str, object] = {}
    for field in FIELDS[type(item.event)]:
        value = getattr(event, field.name)
        if field.kind in (FieldKind.PAGES, FieldKind.KEYS):
            fields[field.name] = dict(zip(groups, map(_plain, value), strict=False))
        elif field.kind in (FieldKind.CURSORS, FieldKind.CURSOR_ARRAYS) and value is not None:
            fields[field.name] = dict(zip(windows, map(_plain, value), strict=False))
        elif field.kind is FieldKind.U64:
            fields[field.name] = f"{value:016x}"
        elif field.kind is FieldKind.GROUP:
            fields[field.name] = groups[value]
        elif field.kind is FieldKind.SPACE:
            fields[field.name] = layout.spaces[value].name
        else:
            fields[field.name] = _plain(value)
    return found | {"fields": fields}


def _envelope(item: Recorded) -> dict[str, object]:
    return {
        "seq": item.seq,
        "step": item.step,
        "time_ns": item.time_ns,
        "event": kind_of(item.event),
    }


def _plain(value: object) -> object:
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == np.uint64:
        return [f"{key:016x}" for key in value.tolist()]
    return value.tolist()
