"""Arguments of commands, checked: each error says what was asked and what would do."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kvlife.errors import BadArgument, BadLength, PinRefused

I32 = npt.NDArray[np.int32]


def as_id(what: str, value: object) -> str:
    """An id: a str with at least one character; raises `BadArgument`."""
    if not isinstance(value, str) or not value:
        raise BadArgument(f"{what} is a str with at least one character, got {value!r}")
    if len(value) > 1 << 10 or not value.isprintable():
        raise BadArgument(f"{what} is printable and at most 1,024 characters, got {value[:40]!r}")
    # Kept by the ledger, which knows no subclasses (numpy's among them).
    return value if type(value) is str else str.__str__(value)


def is_name(value: object) -> bool:
    """Whether a value can name anything; what cannot may not even be hashable."""
    return isinstance(value, str)


def as_length(what: str, value: object, low: int, high: int) -> int:
    """A whole number in [low, high]; raises `BadLength`."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_)):
        number = int(value)
        if low <= number <= high:
            return number
    raise BadLength(f"{what} must be a whole number in [{low}, {high}], got {value!r}")


def as_lens(what: str, lens: object, num: int) -> I32:
    """Lengths as int32, one for each of `num` requests; raises `BadLength`."""
    array = _whole_numbers(lens)
    if array is None:
        raise BadLength(f"{what} must be a list of whole numbers, got {lens!r}")
    if array.size != num:
        raise BadLength(f"{what} has {array.size} entries for {num} requests")
    if array.size and (int(array.min()) < 0 or int(array.max()) >= 1 << 31):
        raise BadLength(f"{what} must lie in [0, 2^31), got {lens!r}")
    return array.astype(np.int32)


def as_pages(pages: object, num_pages: int) -> I32:
    """Page ids of a space, each once and sorted, as int32; raises `PinRefused`."""
    array = _whole_numbers(pages)
    if array is None or not array.size:
        raise PinRefused(f"pages must be a list of page ids, got {pages!r}")
    if int(array.min()) < 1 or int(array.max()) >= num_pages:
        raise PinRefused(f"pages must lie in [1, {num_pages}), got {pages!r}")
    return np.unique(array).astype(np.int32)


def _whole_numbers(values: object) -> npt.NDArray[np.integer[Any]] | None:  # Any: of any width
    """A list of integers as an array, or None where it is none."""
    try:
        array = np.asarray(values)
    # `__array__` is the caller's, and may raise anything.
    except Exception:  # noqa: BLE001
        return None
    return array if array.ndim == 1 and (not array.size or array.dtype.kind in "iu") else None
