"""Arguments of commands, checked: each error says what was asked and what would do."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kvlife.errors import BadArgument, BadLength

I32 = npt.NDArray[np.int32]


def as_id(what: str, value: object) -> str:
    """An id: a str with at least one character; raises `BadArgument`."""
    if not isinstance(value, str) or not value:
        raise BadArgument(f"{what} is a str with at least one character, got {value!r}")
    if len(value) > 1 << 10 or not value.isprintable():
        raise BadArgument(f"{what} is printable and at most 1,024 characters, got {value[:40]!r}")
    return value


def as_length(what: str, value: object, low: int, high: int) -> int:
    """A whole number in [low, high]; raises `BadLength`."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_)):
        number = int(value)
        if low <= number <= high:
            return number
    raise BadLength(f"{what} must be a whole number in [{low}, {high}], got {value!r}")


def as_lens(what: str, lens: object, num: int) -> I32:
    """Lengths as int32, one for each of `num` requests; raises `BadLength`."""
    try:
        array = np.asarray(lens)
    except (TypeError, ValueError, OverflowError) as cause:
        raise BadLength(f"{what} must be a list of whole numbers, got {lens!r}") from cause
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise BadLength(f"{what} must be a list of whole numbers, got {lens!r}")
    if array.size != num:
        raise BadLength(f"{what} has {array.size} entries for {num} requests")
    if array.size and (int(array.min()) < 0 or int(array.max()) >= 1 << 31):
        raise BadLength(f"{what} must lie in [0, 2^31), got {lens!r}")
    return array.astype(np.int32)
