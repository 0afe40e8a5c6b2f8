"""Small arrays for the fields of events: read-only, so that an event can hold them uncopied."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]

NO_LINKS: I32 = np.empty((0, 4), np.int32)
NO_LINKS.setflags(write=False)


def ints(numbers: Iterable[int]) -> I32:
    """An array of the numbers."""
    array = np.fromiter(numbers, np.int32)
    array.setflags(write=False)
    return array
