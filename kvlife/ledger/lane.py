"""The lane: lengths of the batch that steps now, kept side by side until somebody else looks."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]


@attrs.define(eq=False)
class Lane:
    """Lengths of the rows of `index`, in its order; the arrays are replaced, never written into.

    A scheduler steps the same batch again and again. While it does, gathering its lengths from
    the columns and scattering them back would be most of the work, so the columns are brought up
    to date only when they are read (`RowColumns.allocated` and its like do that by themselves).
    `num_pages` are the pages of `allocated` in each group, where known, and `held_at` the
    `Ledger.membership` at which all rows were seen to be HELD by requests.
    """

    index: Index
    allocated: I32
    committed: I32
    settled: I32
    unbounded: bool
    seq: int | None = None
    num_pages: dict[int, I32] = attrs.field(factory=dict)
    held_at: int | None = None
