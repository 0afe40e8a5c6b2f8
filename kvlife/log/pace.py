"""When the next snapshot is due, in bytes of events."""

from __future__ import annotations


class SnapshotPace:
    """At least `every_bytes` apart, and `events_per_byte` bytes of events for each of snapshots.

    With two, snapshots take no more than half of the events' bytes. The empty state before seq 0
    counts as a snapshot and need not be written. Bytes are counted before compression, of both.
    """

    def __init__(self, every_bytes: int, events_per_byte: int = 2) -> None:
        self._every_bytes = every_bytes
        self._events_per_byte = events_per_byte
        self._due_bytes = every_bytes
        self._begun_bytes = 0
        self._snapshot_bytes = 0
        self.busy = False

    def due_in(self, log_bytes: int) -> int | None:
        """How many bytes of events are still to come; None while a snapshot is being written."""
        return None if self.busy else self._due_bytes - log_bytes

    def begin(self, log_bytes: int) -> None:
        """A snapshot was handed over."""
        self.busy = True
        self._begun_bytes = log_bytes

    def done(self, raw_bytes: int | None, log_bytes: int) -> None:
        """It was written with so many bytes, or could not be."""
        if raw_bytes is None:
            self.put_off(log_bytes)
        else:
            self._snapshot_bytes += raw_bytes
            least = self._events_per_byte * self._snapshot_bytes
            self._due_bytes = max(self._begun_bytes + self._every_bytes, least)
        self.busy = False

    def put_off(self, log_bytes: int) -> None:
        """There was no space for it: try again a little later."""
        self._due_bytes = log_bytes + self._every_bytes // 4
