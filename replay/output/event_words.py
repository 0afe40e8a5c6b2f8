"""An event in one line of words, and where two events differ, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.config import Layout
from kvlife.events import FIELDS, Event, FieldKind, Recorded
from kvlife.log import UnknownEvent
from kvlife.replay.output.quoting import printable

Ints = npt.NDArray[np.int32] | npt.NDArray[np.uint64]

# So many runs of numbers are written out, and so many signs of an id.
MAX_RUNS = 6
# What pages that are on no device are said to be of.
HOST = "the host"
MAX_SIGNS = 64

_SAYS_NOTHING = (("namespace", "0"), ("evict_floor", "0"))
_PER_GROUP = (FieldKind.PAGES, FieldKind.KEYS)
_PER_WINDOW = (FieldKind.CURSORS, FieldKind.CURSOR_ARRAYS)


@attrs.frozen
class FieldDifference:
    """A field that two events have differently: which, and what it is in each."""

    field: str
    left: str
    right: str


def words_of(event: Event | UnknownEvent, layout: Layout) -> str:
    """The kind of an event and its fields, with those that say nothing left out."""
    if isinstance(event, UnknownEvent):
        return f"unknown kind {event.code}, {event.size_bytes} bytes"
    told = [
        f"{name} {text}"
        for name, value in _parts(event, layout)
        if (text := _text(value)) and (name, text) not in _SAYS_NOTHING
    ]
    return " ".join([type(event).__name__, ", ".join(told)]).strip()


def kind_of(event: Event | UnknownEvent) -> str:
    """The name of an event's kind."""
    if isinstance(event, UnknownEvent):
        return f"unknown kind {event.code}"
    return type(event).__name__


def field_differences(
    left: Recorded, right: Recorded, layout: Layout, ignored: frozenset[str] = frozenset()
) -> list[FieldDifference]:
    """Where two events differ: all fields but the time, and the ignored ones.

    An ignored name is that of a field, or of a field of one kind (`Allocated.pages`).
    """
    found = []
    if left.step != right.step and "step" not in ignored:
        found.append(FieldDifference("step", str(left.step), str(right.step)))
    kind, other = kind_of(left.event), kind_of(right.event)
    if kind != other:
        return [*found, FieldDifference("kind", kind, other)]
    first: Event | UnknownEvent = left.event
    second: Event | UnknownEvent = right.event
    if isinstance(first, UnknownEvent) or isinstance(second, UnknownEvent):
        if repr(first) != repr(second):
            found.append(FieldDifference("size", repr(first), repr(second)))
        return found
    rows = getattr(first, "rows", None)
    mine, others = dict(_parts(first, layout)), dict(_parts(second, layout))
    for name in dict.fromkeys((*mine, *others)):
        field = name.partition("[")[0]
        if field in ignored or f"{kind}.{field}" in ignored:
            continue
        difference = _difference(name, mine.get(name), others.get(name), rows)
        if difference is not None:
            found.append(difference)
    return found


def _parts(event: Event, layout: Layout) -> Iterator[tuple[str, object]]:
    """The fields, those that have a part for each group one by one."""
    for field in FIELDS[type(event)]:
        value = getattr(event, field.name)
        if field.kind in _PER_GROUP:
            names = [group.name for group in layout.groups]
        elif field.kind in _PER_WINDOW and value is not None:
            names = [group.name for group in layout.window_groups]
        else:
            yield field.name, value
            continue
        if len(value) == 1:
            yield field.name, value[0]
            continue
        for idx, part in enumerate(value):
            yield f"{field.name}[{names[idx] if idx < len(names) else idx}]", part


def _text(value: object) -> str:
    """A value in words; empty for an empty array and for nothing."""
    if value is None:
        return ""
    if isinstance(value, np.ndarray):
        return _listed(value)
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, str):
        return printable(value, MAX_SIGNS) or "''"
    return str(value)


def _listed(array: Ints) -> str:
    if array.ndim == 2:
        told = [str(tuple(link)) for link in array[:MAX_RUNS].tolist()]
        return " ".join(told) + (f" … {len(array)} in all" if len(array) > MAX_RUNS else "")
    if array.dtype == np.uint64:
        told = [f"{key:016x}" for key in array[: MAX_RUNS // 2].tolist()]
        return " ".join(told) + (f" … {array.size} in all" if array.size > len(told) else "")
    return numbers(array)


def numbers(array: npt.ArrayLike) -> str:
    """Numbers in their order, those that follow each other as a range, cut after a few."""
    values = np.asarray(array).astype(np.int64)
    cuts = np.flatnonzero(np.diff(values) != 1) + 1
    bounds = [0, *cuts[:MAX_RUNS].tolist(), values.size][: MAX_RUNS + 1]
    told: list[str] = []
    for low, high in pairwise(bounds):
        run = values[low:high].tolist()
        told += [f"{run[0]}-{run[-1]}"] if len(run) > 1 else map(str, run)
    return " ".join(told) + (f" … {values.size} in all" if bounds[-1] < values.size else "")


def _difference(
    name: str, left: object, right: object, rows: npt.NDArray[np.int32] | None
) -> FieldDifference | None:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return _difference(name, _as_array(left), _as_array(right), rows)
    if not (isinstance(left, np.ndarray) and isinstance(right, np.ndarray)):
        several = isinstance(left, np.ndarray | tuple) or isinstance(right, np.ndarray | tuple)
        if not several and left == right:
            return None
        return FieldDifference(name, _side(left), _side(right))
    if left.shape == right.shape and bool((left == right).all()):
        return None
    num = min(len(left), len(right))
    unequal = left[:num] != right[:num]
    places = np.flatnonzero(unequal.any(axis=1) if unequal.ndim == 2 else unequal)
    place = int(places[0]) if places.size else num
    where = f"{name}[{place}]"
    if rows is not None and len(rows) == len(left) and name not in ("rows", "drained"):
        where += f" (row {rows[place]})" if place < len(rows) else ""
    told = [_entry(side, place) for side in (left, right)]
    if len(left) != len(right):
        told = [f"{told[0]} ({len(left)} in all)", f"{told[1]} ({len(right)} in all)"]
    elif places.size > 1:
        where += f" and {places.size - 1} more"
    return FieldDifference(where, told[0], told[1])


def _side(value: object) -> str:
    return "none" if value is None else _text(value) or "empty"


def _as_array(values: tuple[object, ...]) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def _entry(array: Ints, place: int) -> str:
    if place >= len(array):
        return "nothing"
    entry = array[place]
    if isinstance(entry, np.ndarray):
        return str(tuple(entry.tolist()))
    return f"{entry:016x}" if array.dtype == np.uint64 else str(entry)
