"""All event classes by code and name, and the envelope that stands around each in a log."""

from __future__ import annotations

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
