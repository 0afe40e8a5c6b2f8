"""`Change`: what an event means for a state, as the guards check it and `apply` writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from kvlife.events import PageLists
    from kvlife.ledger.hosting import HostCopy
    from kvlife.ledger.spans import At

I32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]
# One length for a single row, an array for many.
Lens = Any  # Any: int and int32 arrays share the arithmetic, and no protocol spells that


class Change:
    """Lengths after the event (None = unchanged) and positions per group in the page tables.

    `row` names the one row, or `index` the rows of a batch. `gone_at` are entries whose pages are
    let go, `joined_at` entries that get a shared page, `taken_at` entries that get a FREE page;
    `gone`, `joined` and `taken` are the pages that the event names for them. `num_pages` are the
    pages of the new allocated lengths of full groups, and `crossing` the positions in the batch of
    the rows that take one page of the base group, where that is known; `one_each` says that every
    row of `index` gains one token. `saved` is what a retraction copies to the host, `restored` what
    a resumption copies back, `host_gone` the host pages that are let go.
    """

    # A plain class with defaults: two are made in each decode step, most fields unset.
    row: int | None = None
    index: Index | None = None
    protected: Lens = None
    committed: Lens = None
    allocated: Lens = None
    settled: Lens = None
    cursors: tuple[Lens, ...] | None = None
    old_allocated: Lens = None
    old_protected: int | None = None
    gone_at: tuple[At, ...] | None = None
    joined_at: tuple[At, ...] | None = None
    taken_at: tuple[At, ...] | None = None
    gone: PageLists | None = None
    joined: PageLists | None = None
    taken: PageLists | None = None
    num_pages: dict[int, I32] | None = None
    crossing: Index | None = None
    one_each: bool = False
    saved: HostCopy | None = None
    restored: HostCopy | None = None
    host_gone: I32 | None = None

    def __init__(self, **fields: Any) -> None:  # Any: any of the fields above
        if fields:
            self.__dict__.update(fields)
