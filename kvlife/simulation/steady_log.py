"""A log whose bytes depend on the events alone."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kvlife.log import LogWriter

if TYPE_CHECKING:
    from kvlife.log import StateSnapshot


class SteadyLog(LogWriter):
    """A `LogWriter` that waits until a snapshot is written before it goes on.

    When the next snapshot is due depends on the size of the last one, which is known once it is
    written, and that takes as long as the machine needs: here the events wait for it.
    """

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]  # the same as LogWriter's
        self._snapshot_written = threading.Event()

    def _hand_over(self, snapshot: StateSnapshot, seq: int, offset: int) -> None:
        self._snapshot_written.clear()
        super()._hand_over(snapshot, seq, offset)
        self._snapshot_written.wait()
        self._settle()

    def _snapshot_done(self, raw_bytes: int | None) -> None:
        super()._snapshot_done(raw_bytes)
        self._snapshot_written.set()
