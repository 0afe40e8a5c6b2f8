"""What makes two events the same, or belong together; and where two lists of them agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from operator import attrgetter
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.errors import ConfigError
from kvlife.events import FIELDS, Event, FieldKind, Recorded
from kvlife.log import UnknownEvent

_NAMING = (
    FieldKind.TEXT,
    FieldKind.MAYBE_TEXT,
    FieldKind.REASON,
    FieldKind.FLAG,
    FieldKind.ROWS,
    FieldKind.GROUP,
    FieldKind.SPACE,
)
_TEXTS = (FieldKind.TEXT, FieldKind.MAYBE_TEXT)

Getter = Callable[[Event], tuple[Any, ...]]  # Any: fields of every kind


@attrs.frozen(kw_only=True)
class Ignored:
    """What is not compared: kinds of events, and fields by name or as `Kind.field`."""

    kinds: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()


def ignored_named(names: Sequence[str]) -> Ignored:
    """What these names say is not to be compared; raises `ConfigError` for one that is nothing."""
    kinds = {cls.__name__ for cls in FIELDS}
    fields = {field.name for each in FIELDS.values() for field in each} | {"step"}
    whole = {f"{cls.__name__}.{field.name}" for cls, each in FIELDS.items() for field in each}
    for name in names:
        if name not in kinds | fields | whole:
            near = get_close_matches(name, sorted(kinds | fields | whole), n=3)
            raise ConfigError(
                f"--ignore {name}: no such kind of event, or field; near are"
                f" {', '.join(near or sorted(kinds))}"
            )
    chosen = frozenset(names)
    return Ignored(kinds=chosen & kinds, fields=chosen & (fields | whole))


class Sameness:
    """Holds events against each other in all but the time and the ignored fields."""

    def __init__(self, ignored: frozenset[str]) -> None:
        self._fields = {cls: _getter(cls, ignored) for cls in FIELDS}
        self._with_step = "step" not in ignored

    def same(self, left: Recorded, right: Recorded) -> bool:
        """Whether two events say the same."""
        mine: Event | UnknownEvent = left.event
        other: Event | UnknownEvent = right.event
        if mine.__class__ is not other.__class__:
            return False
        if self._with_step and left.step != right.step:
            return False
        if isinstance(mine, UnknownEvent) or isinstance(other, UnknownEvent):
            return repr(mine) == repr(other)
        get = self._fields[type(mine)]
        return all(map(_equal, get(mine), get(other)))

    def mark(self, item: Recorded) -> int:
        """A number that is the same for events that say the same."""
        event: Event | UnknownEvent = item.event
        step = item.step if self._with_step else None
        if isinstance(event, UnknownEvent):
            return hash((repr(event), step))
        return hash((event.CODE, step, *map(_hashable, self._fields[type(event)](event))))


def _hashable(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return tuple(map(_hashable, value)) if isinstance(value, tuple) else value


def _getter(cls: type[Event], ignored: frozenset[str]) -> Getter:
    names = [
        field.name
        for field in FIELDS[cls]
        if field.name not in ignored and f"{cls.__name__}.{field.name}" not in ignored
    ]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda event: tuple(getattr(event, name) for name in names)


def _equal(left: object, right: object) -> bool:
    if left is right:
        return True
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        # Fields have one dtype, so that equal bytes are equal numbers.
        return left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_equal, left, right))
    return not isinstance(left, np.ndarray) and not isinstance(right, np.ndarray) and left == right


def shape_of(item: Recorded) -> int:
    """What two events that belong together have in common: kind, names, and the rows of a batch."""
    event: Event | UnknownEvent = item.event
    if isinstance(event, UnknownEvent):
        return hash(("unknown", event.code))
    fields = FIELDS[type(event)]
    named = any(field.kind in _TEXTS for field in fields)
    parts: list[object] = [event.CODE]
    for field in fields:
        if field.kind in _NAMING or (field.kind is FieldKind.ROW and not named):
            value = getattr(event, field.name)
            parts.append(value.tobytes() if isinstance(value, np.ndarray) else value)
    return hash(tuple(parts))


def agreement(left: list[int], right: list[int], *, ended: bool) -> tuple[int, int] | None:
    """How many of each to leave out so that three agree, or all up to the `ended` logs' end.

    The fewest; of equally few, the fewest of the left.
    """
    mine, others = (_triples(prints, ended=ended) for prints in (left, right))
    values, places = np.unique(mine, return_index=True)
    other_values, other_places = np.unique(others, return_index=True)
    _, at, other_at = np.intersect1d(values, other_values, assume_unique=True, return_indices=True)
    if not at.size:
        return None
    skipped, skipped_there = places[at], other_places[other_at]
    nearest = np.lexsort((skipped, skipped + skipped_there))[0]
    return int(skipped[nearest]), int(skipped_there[nearest])


def _triples(prints: Iterable[int], *, ended: bool) -> npt.NDArray[np.uint64]:
    listed = [each & 0xFFFF_FFFF_FFFF_FFFF for each in prints] + [0, 1] * ended
    array = np.array(listed, np.uint64)
    if array.size < 3:
        return array[:0]
    third, ninth = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
    mixed: npt.NDArray[np.uint64] = array[:-2] + array[1:-1] * third + array[2:] * ninth
    return mixed
