"""A log whose bytes depend on the events alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from kvlife.log import LogWriter

if TYPE_CHECKING:
    from kvlife.log import StateSnapshot

DEFAULT_EVERY_BYTES = 4 << 20


class SteadyLog(LogWriter):
    """A `LogWriter` that lets no snapshot be late.

    When a snapshot is due depends on the size of the one before, which is known once it is written,
    and that takes as long as the machine needs. Here the events wait for it halfway to where the
    next one can be due at the earliest, so that equal events give equal logs.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock_ns: Callable[[], int],
        snapshot_every_bytes: int = DEFAULT_EVERY_BYTES,
        segment_bytes: int = 16 << 20,
    ) -> None:
        super().__init__(
            path,
            clock_ns=clock_ns,
            snapshot_every_bytes=snapshot_every_bytes,
            segment_bytes=segment_bytes,
        )
        self._patience_bytes = snapshot_every_bytes // 2
        self._wait_from: int | None = None

    @property
    def wants_snapshot(self) -> bool:
        """Whether a snapshot is due; waits for the last one where it must be known by now."""
        if self._wait_from is not None and self.log_bytes > self._wait_from:
            self._wait_from = None
            self.wait()
        return super().wants_snapshot

    def snapshot(self, snapshot: StateSnapshot) -> None:
        """As `LogWriter.snapshot`."""
        super().snapshot(snapshot)
        self._wait_from = self.log_bytes + self._patience_bytes
