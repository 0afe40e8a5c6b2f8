"""All event classes by code and name, and the envelope that stands around each in a log."""

from __future__ import annotations

import operator

import attrs
import numpy as np

from kvlife.events import pool, requests
from kvlife.events.fields import Field, fields_of

Event = (
    requests.Admitted
    | requests.Resumed
    | requests.Allocated
    | requests.Committed
    | requests.Protected
    | requests.RolledBack
    | requests.WindowEvicted
    | requests.Released
    | requests.Retracted
    | pool.Evicted
    | pool.SessionSaved
    | pool.SessionRestored
    | pool.SessionClosed
    | pool.StepDispatched
    | pool.StepSettled
    | pool.Pinned
    | pool.Unpinned
    | pool.Resized
    | pool.Marked
    | pool.Violated
    | pool.Digested
)

EVENT_TYPES: tuple[type[Event], ...] = Event.__args__
BY_CODE: dict[int, type[Event]] = {cls.CODE: cls for cls in EVENT_TYPES}
BY_NAME: dict[str, type[Event]] = {cls.__name__: cls for cls in EVENT_TYPES}
FIELDS: dict[type[Event], tuple[Field, ...]] = {cls: fields_of(cls) for cls in EVENT_TYPES}

# Codes that later events will take: Forked 21, StateBound 22, StateTracked 23, StateDonated 24,
# StateReleased 25, Moved 26. A code, once given, never changes its meaning.


@attrs.define(eq=False)
class Recorded:
    """An event in its envelope: `seq` from 0 without a gap, `step`, and `time_ns` to be shown."""

    seq: int
    step: int
    time_ns: int
    event: Event


def own_arrays(event: Event) -> Event:
    """The event with arrays that nobody else can write into; itself where it has no others."""
    held = {field.name: getattr(event, field.name) for field in FIELDS[type(event)]}
    owned = {name: _owned(value) for name, value in held.items()}
    changed = {name: value for name, value in owned.items() if value is not held[name]}
    # The fields of one class among those of the union, which mypy cannot see.
    return attrs.evolve(event, **changed) if changed else event  # type: ignore[arg-type]


def _owned(value: object) -> object:
    if isinstance(value, tuple):
        items = tuple(map(_owned, value))
        return value if all(map(operator.is_, items, value)) else items
    if not isinstance(value, np.ndarray):
        return value
    base = value.base
    if value.flags.writeable or (isinstance(base, np.ndarray) and base.flags.writeable):
        value = value.copy()
        value.setflags(write=False)
    return value


def same_event(left: Event, right: Event) -> bool:
    """Whether two events say the same, array contents included."""
    return type(left) is type(right) and all(
        _same(getattr(left, field.name), getattr(right, field.name)) for field in FIELDS[type(left)]
    )


def _same(left: object, right: object) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return (
            isinstance(left, np.ndarray)
            and isinstance(right, np.ndarray)
            and bool(left.dtype == right.dtype)
            and np.array_equal(left, right)
        )
    return left == right
