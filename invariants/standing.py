"""What the last proofs have shown of one batch, so that the next step need not gather it again.

A decoding batch is named by the same array of rows, step after step, and most steps change little
of what was shown of it the step before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvlife.invariants.page_proofs import HELD
from kvlife.ledger.spans import indices

if TYPE_CHECKING:
    from kvlife.events import Allocated
    from kvlife.invariants.page_proofs import I32, Index
    from kvlife.ledger import Change, Lane, Ledger


class HeldRows:
    """Remembers the batch whose rows were all found HELD; it holds until a row changes hands."""

    __slots__ = ("_ledger", "_membership", "_rows")

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._ledger: Ledger | None = None
        self._rows: I32 | None = None
        self._membership = -1

    def knows(self, ledger: Ledger, rows: I32) -> bool:
        """Whether this very array was found good, and no row has changed hands since."""
        return (
            rows is self._rows and ledger.membership == self._membership and ledger is self._ledger
        )

    def remember(self, ledger: Ledger, rows: I32) -> None:
        """The rows of this array are good; one that could be written to is not remembered."""
        if not rows.flags.writeable:
            self._ledger, self._rows, self._membership = ledger, rows, ledger.membership

    def all_held(self, ledger: Ledger, rows: I32, index: Index) -> bool:
        """Whether all these rows are HELD."""
        if self.knows(ledger, rows):
            return True
        if ledger.rows.state.take(index).tobytes() != HELD * len(index):
            return False
        self.remember(ledger, rows)
        return True


class Tails:
    """Per group, the page of each row's last allocated position, for the batch that steps.

    It holds for the lane it was made for and the allocated lengths noted last: a lane ends as soon
    as anything else happens to its rows, and its arrays are replaced and never written into.
    """

    __slots__ = ("_allocated", "_lane", "_spots", "pages")

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._lane: Lane | None = None
        self._allocated: I32 | None = None
        self._spots: Index | None = None
        self.pages: list[Index] = []

    def keep(self, lane: Lane, pages: list[Index]) -> None:
        """Remember the last pages at the lane's allocated lengths."""
        self._lane, self._allocated, self._spots, self.pages = lane, lane.allocated, None, pages

    def follow(self, ledger: Ledger, event: Allocated, change: Change, lane: Lane) -> bool:
        """Bring the pages up to date with an allocation; False where they are not known."""
        if lane is not self._lane or change.old_allocated is not self._allocated:
            return False
        self._allocated = lane.allocated
        for group, pages in enumerate(event.pages):
            if not len(pages) or change.taken_at is None:
                continue
            if self._spots is None:
                self._spots = np.zeros(ledger.layout.num_rows, np.intp)
                self._spots[lane.index] = np.arange(len(lane.index))
            rows = indices(change.taken_at[group]) // ledger.layout.groups[group].table_width
            if len(rows) != len(pages):
                return False
            # Where a row takes several pages its last one stands, as later entries overwrite.
            self.pages[group][self._spots[rows]] = pages
        return True
