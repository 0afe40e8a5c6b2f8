"""A batch of requests: rows and their generations, no lengths."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt


@attrs.define(eq=False)
class Batch:
    """Made by `KvEngine.batch` when membership changes; stale once a row changes hands.

    `rows` is int32 and `index` the same as an index array; both are read-only.
    """

    rids: tuple[str, ...]
    rows: npt.NDArray[np.int32]
    index: npt.NDArray[np.intp]
    generations: bytes
    membership: int

    def __len__(self) -> int:
        """How many requests."""
        return len(self.rids)
