"""Runs that a writer with bugs of its own might write: well-formed events that are not true."""

import attrs
import numpy as np

from kvlife.errors import KvLifeError
from kvlife.events import FIELDS
from kvlife.log import LogWriter

NEAR = (-2, -1, 1, 2, 4, 16)
FAR = (0, 1, -1, 2, 63, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 62)


def write_forged(folder, header, groups, digest, choice):
    """Write a run anew with one thing changed, and say what; None where nothing could be."""
    groups = [[item.event for item in group] for group in groups]
    what = choice.choice(FORGERIES)(groups, choice)
    if what is None:
        return None
    writer = LogWriter(folder, segment_bytes=1 << 14, compress=False, clock_ns=lambda: 0)
    writer.start(header)
    seq = 0
    for step, group in enumerate(groups):
        try:
            writer.append(seq, step, step, group)
        except (KvLifeError, OverflowError, ValueError, TypeError):
            # The writer's own refusal of what has no form; the run ends there.
            digest = None
            break
        seq += len(group)
    writer.close(digest)
    return what


def _change_field(groups, choice):
    group = choice.choice(groups)
    at = choice.randrange(len(group))
    event = group[at]
    if not FIELDS[type(event)]:
        return None
    field = choice.choice(FIELDS[type(event)])
    value = getattr(event, field.name)
    group[at] = attrs.evolve(event, **{field.name: other_value(value, choice)})
    return f"{type(event).__name__}.{field.name}"


def _change_pages(groups, choice):
    """Pages are what most invariants are about."""
    for _ in range(50):
        group = choice.choice(groups)
        at = choice.randrange(len(group))
        names = [f.name for f in FIELDS[type(group[at])] if f.name in ("pages", "rows", "rebinds")]
        for name in names:
            value = getattr(group[at], name)
            group[at] = attrs.evolve(group[at], **{name: other_value(value, choice)})
            return f"{type(group[at]).__name__}.{name}"
    return None


def _leave_out(groups, choice):
    return f"without {names(groups.pop(choice.randrange(len(groups))))}"


def _repeat(groups, choice):
    at = choice.randrange(len(groups))
    groups.insert(choice.randrange(at, len(groups)), groups[at])
    return f"again {names(groups[at])}"


def _swap(groups, choice):
    at = choice.randrange(len(groups) - 1)
    groups[at : at + 2] = groups[at : at + 2][::-1]
    return f"swapped {names(groups[at])}"


def _split(groups, choice):
    """A group's first events only: harmless by itself, and the rest is missing."""
    long = [group for group in groups if len(group) > 1]
    if not long:
        return None
    del choice.choice(long)[-1]
    return "a part of a group"


FORGERIES = [
    _change_field, _change_field, _change_field, _change_pages, _change_pages,
    _leave_out, _repeat, _swap, _split,
]  # fmt: skip


def names(group):
    return ", ".join(type(event).__name__ for event in group)


def other_value(value, choice):
    """A value of the same type, or of one that the field may hold as well."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return choice.choice(FAR) if choice.random() < 0.4 else value + choice.choice(NEAR)
    if isinstance(value, str):
        return choice.choice(("", "r0", "r1", "r2", "aborted", "flush", value + "x"))
    if isinstance(value, tuple) and value:
        at = choice.randrange(len(value))
        return (*value[:at], other_value(value[at], choice), *value[at + 1 :])
    if isinstance(value, np.ndarray):
        return other_array(value, choice)
    return choice.choice((None, 0, 1, "r0"))


def other_array(array, choice):
    """An array with an item changed, left out, repeated or exchanged, as read-only as before."""
    flat = array.ravel().copy()
    match choice.randrange(6) if flat.size else 4:
        case 0:
            flat = np.delete(flat, choice.randrange(flat.size))
        case 1:
            flat = np.append(flat, flat[choice.randrange(flat.size)])
        case 2:
            left, right = choice.randrange(flat.size), choice.randrange(flat.size)
            flat[[left, right]] = flat[[right, left]]
        case 3:
            far = min(max(choice.choice(FAR), np.iinfo(flat.dtype).min), np.iinfo(flat.dtype).max)
            flat[choice.randrange(flat.size)] = far
        case 4:
            flat = np.append(flat, array.dtype.type(choice.randrange(200)))
        case _:
            flat[choice.randrange(flat.size)] ^= array.dtype.type(choice.randrange(1, 64))
    if array.ndim == 2:
        flat = flat[: flat.size // 4 * 4].reshape(-1, 4)
    flat.setflags(write=False)
    return flat
