"""The request rows as columns: one array a field, indexed by row; row 0 is reserved."""

from __future__ import annotations

import enum

import attrs
import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]

# A row that no step was ever dispatched for: all that is allocated counts as settled.
UNBOUNDED = (1 << 31) - 1


class RowState(enum.IntEnum):
    """What a row is: FREE, HELD by a request or session, DRAINING, or RESERVED (row 0)."""

    FREE = 0
    HELD = 1
    DRAINING = 2
    RESERVED = 3


@attrs.define(eq=False)
class RowColumns:
    """Per row, lengths in tokens: the record's fields, state, generation, steps in flight, ...

    `settled` is `UNBOUNDED` until a step names the row. `cursors` is [window groups, rows].
    `newest_step` is the last step that named the row, meaningful while `in_flight` is above 0.
    """

    state: npt.NDArray[np.uint8]
    generation: npt.NDArray[np.uint32]
    protected: I32
    committed: I32
    allocated: I32
    settled: I32
    prompt_len: I32
    floor: I32
    cursors: I32
    in_flight: I32
    newest_step: npt.NDArray[np.int64]
    namespace: npt.NDArray[np.uint64]
    last_event: npt.NDArray[np.int64]
    rid: list[str | None]
    session: list[str | None]

    @classmethod
    def create(cls, num_rows: int, num_windows: int) -> RowColumns:
        """All rows FREE, row 0 RESERVED."""
        state = np.zeros(num_rows, np.uint8)
        state[0] = RowState.RESERVED
        ints = {
            name: np.zeros(num_rows, np.int32)
            for name in ("protected", "committed", "allocated", "prompt_len", "floor", "in_flight")
        }
        return cls(
            state=state,
            generation=np.zeros(num_rows, np.uint32),
            settled=np.full(num_rows, UNBOUNDED, np.int32),
            cursors=np.zeros((num_windows, num_rows), np.int32),
            newest_step=np.zeros(num_rows, np.int64),
            namespace=np.zeros(num_rows, np.uint64),
            last_event=np.zeros(num_rows, np.int64),
            rid=[None] * num_rows,
            session=[None] * num_rows,
            **ints,
        )

    def reset(self, row: int) -> None:
        """Make a row FREE; its generation rises, so that batches that name it are stale."""
        self.state[row] = RowState.FREE
        self.generation[row] += 1
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
