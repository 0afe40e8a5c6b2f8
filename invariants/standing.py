"""What the last proofs have shown of one batch, so that the next step need not gather it again.

A decoding batch is named by the same array of rows, step after step. As long as every event since
has been proven not to touch those rows otherwise, their lengths are those that the last events
named, and the last page of each row is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvlife.invariants.page_proofs import HELD

if TYPE_CHECKING:
    from kvlife.invariants.page_proofs import I32, Index
    from kvlife.ledger import Ledger
    from kvlife.ledger.spans import At


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


class Standing:
    """The lengths and last pages of one batch, valid while `next_seq` keeps up with the ledger.

    `committed` and `allocated` are what the ledger has for `rows`, or None where that is not known.
    `tails` are, per group, the page of each row's last allocated position.
    """

    __slots__ = (
        "_ledger",
        "_spots",
        "_waits",
        "allocated",
        "committed",
        "next_seq",
        "rows",
        "tails",
    )

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._ledger: Ledger | None = None
        self._spots: Index | None = None
        self._waits = False
        self.rows: I32 | None = None
        self.next_seq = -1
        self.committed: I32 | None = None
        self.allocated: I32 | None = None
        self.tails: list[Index] | None = None

    def knows(self, ledger: Ledger, rows: I32) -> bool:
        """Whether this very array is the batch, and every event since was proven harmless to it."""
        return rows is self.rows and ledger.next_seq == self.next_seq and ledger is self._ledger

    def pass_on(self, ledger: Ledger) -> None:
        """The event now guarded was proven, and is of a kind that leaves the batch as it is."""
        if ledger.next_seq == self.next_seq:
            self.next_seq += 1

    def _begin(self, ledger: Ledger, rows: I32) -> None:
        if not self.knows(ledger, rows):
            self._ledger, self.rows = ledger, None if rows.flags.writeable else rows
            self.committed = self.allocated = self.tails = self._spots = None
        self.next_seq = ledger.next_seq + 1

    def will_allocate(self, ledger: Ledger, rows: I32, allocated: I32) -> None:
        """The guarded event sets these allocated lengths; its post-check will see to the tails."""
        self._begin(ledger, rows)
        if self._waits:
            # The post-check of an earlier event was left out, so its pages were never noted.
            self.tails = None
        self._waits = True
        self.allocated = None if allocated.flags.writeable else allocated

    def will_commit(self, ledger: Ledger, rows: I32, committed: I32) -> None:
        """The guarded event sets these committed lengths."""
        self._begin(ledger, rows)
        self.committed = None if committed.flags.writeable else committed

    def will_roll_back(self, ledger: Ledger, rows: I32) -> None:
        """The guarded event cuts tails off, and what was known of lengths is over."""
        self._begin(ledger, rows)
        self.committed = self.allocated = self.tails = None

    def note_taken(
        self, ledger: Ledger, index: Index, taken: tuple[I32, ...], at: tuple[At, ...]
    ) -> None:
        """Rows that took pages end on the last of them."""
        self._waits = False
        if self.tails is None:
            return
        for group, pages in enumerate(taken):
            if not len(pages):
                continue
            if self._spots is None:
                self._spots = np.zeros(ledger.layout.num_rows, np.intp)
                self._spots[index] = np.arange(len(index))
            spots = at[group]
            if isinstance(spots, slice):
                spots = np.arange(spots.start, spots.stop)
            # Where a row takes several pages its last one stands, as later entries overwrite.
            self.tails[group][self._spots[spots // ledger.layout.groups[group].table_width]] = pages
