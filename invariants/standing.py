"""What the last proofs have shown of one batch, so that the next step need not gather it again.

A decoding batch is named by the same array of rows, step after step, and most steps change little
of what was shown of it the step before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvlife.invariants.page_proofs import HELD

if TYPE_CHECKING:
    from kvlife.invariants.page_proofs import I32, Index
    from kvlife.ledger import Lane, Ledger


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


class OwnPages:
    """Remembers the batch that was proven to write on pages of its own, up to its allocated ends.

    It holds for the lane and the array of allocated lengths it was noted with: a lane ends as soon
    as anything else happens to its rows, and its arrays are replaced and never written into. A page
    that one row alone references becomes shared or published only through its row, or by a fault,
    and a checker that has found a fault forgets this.
    """

    __slots__ = ("_allocated", "_lane")

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._lane: Lane | None = None
        self._allocated: I32 | None = None

    def note(self, lane: Lane) -> None:
        """The rows of this lane write on their own pages up to the lane's allocated lengths."""
        self._lane, self._allocated = lane, lane.allocated

    def reach(self, lane: Lane, allocated_len: I32) -> bool:
        """Whether that was noted of this lane at these allocated lengths."""
        return lane is self._lane and allocated_len is self._allocated

    def forget(self) -> None:
        """Know nothing."""
        self._lane = self._allocated = None
