"""The request rows as columns: one array a field, indexed by row; row 0 is reserved."""

from __future__ import annotations

import enum

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.ledger.lane import Lane

I32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]

# A row that no step was ever dispatched for: all that is allocated counts as settled.
UNBOUNDED = (1 << 31) - 1


class RowState(enum.IntEnum):
    """What a row is: FREE, HELD by a request or session, DRAINING, or RESERVED (row 0)."""

    FREE = 0
    HELD = 1
    DRAINING = 2
    RESERVED = 3


# The states as plain ints: numpy looks an enum member over at each assignment.
ROW_FREE, ROW_HELD, ROW_DRAINING = int(RowState.FREE), int(RowState.HELD), int(RowState.DRAINING)


@attrs.define(eq=False)
class RowColumns:
    """Per row, lengths in tokens: the record's fields, state, generation, steps in flight, ...

    `settled` is `UNBOUNDED` until a step names the row. `cursors` is [window groups, rows].
    `newest_step` is the last step that named the row, meaningful while `in_flight` is above 0.
    """

    state: npt.NDArray[np.uint8]
    generation: npt.NDArray[np.uint32]
    protected: I32
    _committed: I32
    _allocated: I32
    _settled: I32
    prompt_len: I32
    floor: I32
    cursors: I32
    in_flight: I32
    newest_step: npt.NDArray[np.int64]
    namespace: npt.NDArray[np.uint64]
    _last_event: npt.NDArray[np.int64]
    rid: list[str | None]
    session: list[str | None]
    _lane: Lane | None = None

    @property
    def committed(self) -> I32:
        """Committed lengths; reading or writing the column ends the lane."""
        self.leave_lane()
        return self._committed

    @property
    def allocated(self) -> I32:
        """Allocated lengths; reading or writing the column ends the lane."""
        self.leave_lane()
        return self._allocated

    @property
    def settled(self) -> I32:
        """Settled lengths; reading or writing the column ends the lane."""
        self.leave_lane()
        return self._settled

    @property
    def last_event(self) -> npt.NDArray[np.int64]:
        """Seqs of the last events; reading or writing the column ends the lane."""
        self.leave_lane()
        return self._last_event

    def lane(self, index: Index) -> Lane:
        """The lane of these rows; kept as long as the same array is asked for."""
        lane = self._lane
        if lane is not None and lane.index is index:
            return lane
        self.leave_lane()
        settled = self._settled.take(index)
        lane = self._lane = Lane(
            index,
            self._allocated.take(index),
            self._committed.take(index),
            settled,
            bool(settled.size) and int(settled.min()) == UNBOUNDED,
        )
        return lane

    def lane_at(self, index: Index) -> Lane | None:
        """The lane, if it is that of these rows."""
        lane = self._lane
        return lane if lane is not None and lane.index is index else None

    def leave_lane(self) -> None:
        """Write the lane back into the columns and end it."""
        lane = self._lane
        if lane is None:
            return
        self._lane = None
        if lane.seq is not None:
            self._allocated[lane.index] = lane.allocated
            self._committed[lane.index] = lane.committed
            self._last_event[lane.index] = lane.seq

    def in_use(self) -> Index:
        """The rows that are HELD or DRAINING."""
        return np.flatnonzero((self.state == ROW_HELD) | (self.state == ROW_DRAINING))

    @classmethod
    def create(cls, num_rows: int, num_windows: int) -> RowColumns:
        """All rows FREE, row 0 RESERVED."""
        state = np.zeros(num_rows, np.uint8)
        state[0] = RowState.RESERVED

        def lengths() -> I32:
            return np.zeros(num_rows, np.int32)

        return cls(
            state=state,
            generation=np.zeros(num_rows, np.uint32),
            protected=lengths(),
            committed=lengths(),
            allocated=lengths(),
            settled=np.full(num_rows, UNBOUNDED, np.int32),
            prompt_len=lengths(),
            floor=lengths(),
            cursors=np.zeros((num_windows, num_rows), np.int32),
            in_flight=lengths(),
            newest_step=np.zeros(num_rows, np.int64),
            namespace=np.zeros(num_rows, np.uint64),
            last_event=np.zeros(num_rows, np.int64),
            rid=[None] * num_rows,
            session=[None] * num_rows,
        )

    def renew(self, row: int) -> None:
        """The row has changed hands: its next generation, which begins anew behind the last."""
        self.generation[row] = (int(self.generation[row]) + 1) & 0xFFFF_FFFF

    def reset(self, row: int) -> None:
        """Make a row FREE; its generation rises, so that batches that name it are stale."""
        self.state[row] = ROW_FREE
        self.renew(row)
        for column in (
            self.protected,
            self.committed,
            self.allocated,
            self.prompt_len,
            self.floor,
            self.in_flight,
            self.namespace,
        ):
            column[row] = 0
        self.settled[row] = UNBOUNDED
        self.newest_step[row] = 0
        self.cursors[:, row] = 0
        self.rid[row] = None
        self.session[row] = None
