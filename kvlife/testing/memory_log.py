"""A log in memory, for runs of which only the failing one is worth a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kvlife.events import Event
from kvlife.log import LogWriter, RunHeader
from kvlife.log.snapshot_file import StateSnapshot


class MemoryLog(LogWriter):
    """Keeps the groups of one run; `save` writes them as the log of a run on disk.

    `header` and `digest` are what the observer gave at the start and at the end of the run,
    `groups` what it appended: (seq of the first event, step, time, events).
    """

    def __init__(self) -> None:
        super().__init__(os.devnull)
        self.header: RunHeader | None = None
        self.digest: int | None = None
        self.groups: list[tuple[int, int, int, list[Event]]] = []

    def start(self, header: RunHeader) -> Path:
        """Begin anew."""
        self.header, self.digest, self.groups = header, None, []
        return Path(os.devnull)

    def append(self, seq: int, step: int, time_ns: int, events: Sequence[Event]) -> None:
        """Keep a group."""
        self.groups.append((seq, step, time_ns, list(events)))

    def snapshot(self, snapshot: StateSnapshot) -> None:
        """No snapshot is kept, and none is asked for."""
        snapshot.release()

    def close(self, digest: int | None = None) -> None:
        """Note the final digest."""
        self.digest = digest

    @property
    def next_seq(self) -> int:
        """One past the last event."""
        return self.groups[-1][0] + len(self.groups[-1][3]) if self.groups else 0

    def events(self) -> list[Event]:
        """All events, in order."""
        return [event for *_, events in self.groups for event in events]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write what was recorded as a new run under `path`; returns the run's folder."""
        assert self.header is not None  # it is saved after a run has begun
        writer = LogWriter(path)
        run = writer.start(self.header)
        for seq, step, time_ns, events in self.groups:
            writer.append(seq, step, time_ns, events)
        writer.close(self.digest)
        return run
