"""Small faults put into events that were right: well-formed still, and mostly wrong."""

import attrs
import numpy as np

from kvlife.errors import EventError
from kvlife.events import FIELDS, FieldKind, check_structure


def spoil(event, ledger, rng):
    """The event with one field tampered with, well-formed still; None where that fails."""
    fields = [field for field in FIELDS[type(event)] if field.kind is not FieldKind.FLAG]
    field = rng.choice(fields)
    value = getattr(event, field.name)
    other = attrs.evolve(event, **{field.name: _spoiled(value, field.kind, ledger, rng)})
    try:
        check_structure(other, ledger.layout)
    except EventError:
        return None
    return other


def _spoiled(value, kind, ledger, rng):
    if kind is FieldKind.LINKS:
        link = [rng.randrange(len(ledger.layout.groups)), *(rng.randrange(8) for _ in range(3))]
        return np.array([link], np.int32)
    if isinstance(value, tuple):
        at = rng.randrange(len(value)) if value else 0
        return tuple(
            _spoiled(part, kind, ledger, rng) if idx == at else part
            for idx, part in enumerate(value)
        )
    if isinstance(value, np.ndarray):
        return _spoiled_array(value, rng)
    if kind in (FieldKind.TEXT, FieldKind.MAYBE_TEXT):
        return rng.choice([*ledger.requests, *ledger.waiting, *ledger.sessions, *ledger.pins, "x"])
    if kind is FieldKind.MAYBE_ROW:
        return rng.choice([None, rng.randrange(ledger.layout.num_rows)])
    if kind is FieldKind.REASON:
        return rng.choice(["finished", "aborted", "flush", value])
    if kind in (FieldKind.ROW, FieldKind.GROUP, FieldKind.SPACE) or value is None:
        return rng.randrange(ledger.layout.num_rows)
    return value + rng.choice((-4, -1, 1, 4, 9, -value, -value - 1))


def _spoiled_array(value, rng):
    array = value.copy()
    what = rng.randrange(5)
    if what == 0 and array.size:
        return np.delete(array, rng.randrange(array.size))
    if what == 1 and array.size:
        return np.append(array, array[rng.randrange(array.size)])
    if what == 2:
        return np.append(array, array.dtype.type(rng.randrange(12)))
    if array.size:
        shift = rng.choice((-1, 1, 4, -4, 0))
        spot = rng.randrange(array.size)
        fresh = int(array[spot]) + shift if shift else rng.randrange(10)
        array[spot] = min(max(fresh, 0 if array.dtype == np.uint64 else fresh), (1 << 31) - 1)
    return array
