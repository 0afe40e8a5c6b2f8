"""How much history a log keeps, and which files go."""

from __future__ import annotations

import threading
from pathlib import Path

import attrs

from kvlife.errors import ConfigError
from kvlife.log.wire import MIN_SEGMENT_BYTES

RING_SEGMENTS = 8
RING_SNAPSHOTS = 2


@attrs.frozen(kw_only=True)
class Retention:
    """Everything by default; or at least the last `keep_bytes` and `keep_seconds` of history.

    Bytes are counted on the disk, seconds by the events' `time_ns`. Whole segments go, from a
    snapshot on. `ring_bytes` is a flight recorder instead: so much space is reserved at the start,
    and never more is used.
    """

    keep_bytes: int | None = None
    keep_seconds: float | None = None
    ring_bytes: int | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("keep_bytes", "keep_seconds", "ring_bytes"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{name} must be above 0, got {value!r}: leave it out for none")
        if self.ring_bytes is not None:
            if self.keep_bytes is not None or self.keep_seconds is not None:
                raise ConfigError("ring_bytes stands alone: leave keep_bytes and keep_seconds out")
            if self.ring_bytes < 16 * MIN_SEGMENT_BYTES:
                raise ConfigError(
                    f"ring_bytes is {self.ring_bytes}, at least {16 * MIN_SEGMENT_BYTES} are needed"
                )

    def segment_bytes(self, wanted: int) -> int:
        """The segment size under this retention, in whole memory pages."""
        if self.ring_bytes is not None:
            wanted = self.ring_bytes * 3 // 4 // RING_SEGMENTS
        elif self.keep_bytes is not None:
            wanted = min(wanted, max(1 << 16, self.keep_bytes // 4))
        return max(wanted // MIN_SEGMENT_BYTES, 1) * MIN_SEGMENT_BYTES

    def snapshot_every_bytes(self, wanted: int) -> int:
        """The distance of snapshots under this retention."""
        if self.ring_bytes is not None:
            return min(wanted, self.ring_bytes // 4)
        if self.keep_bytes is not None:
            return min(wanted, max(1 << 13, self.keep_bytes // 4))
        return wanted

    @property
    def ring_snapshot_bytes(self) -> int:
        """The room of one snapshot in a ring; there are two."""
        assert self.ring_bytes is not None
        return self.ring_bytes // 4 // RING_SNAPSHOTS


@attrs.define
class KeptSegment:
    """A segment on the disk, with the time of its last event once it is sealed."""

    path: Path
    idx: int
    num_bytes: int
    last_ns: int = 0
    sealed: bool = False


@attrs.frozen
class KeptSnapshot:
    """A snapshot on the disk, and the segment that its record stands in."""

    path: Path
    seq: int
    segment_idx: int
    num_bytes: int
    time_ns: int


class Inventory:
    """The files of a run while it is written. The engine's thread adds to it, the log's removes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._segments: list[KeptSegment] = []
        self._snapshots: list[KeptSnapshot] = []

    def add_segment(self, segment: KeptSegment) -> None:
        """A segment was begun."""
        with self._lock:
            self._segments.append(segment)

    def add_snapshot(self, snapshot: KeptSnapshot) -> None:
        """A snapshot was written."""
        with self._lock:
            self._snapshots.append(snapshot)

    @property
    def disk_bytes(self) -> int:
        """The bytes of all files, a segment in use counted with its reserved space."""
        with self._lock:
            segments = sum(segment.num_bytes for segment in self._segments)
            return segments + sum(snapshot.num_bytes for snapshot in self._snapshots)

    def cut(self, retention: Retention, now_ns: int) -> list[Path]:
        """Forget what the retention lets go, and return its files, the oldest first."""
        with self._lock:
            start = self._first_kept(retention, now_ns)
            if start is None:
                return []
            gone_segments = [s for s in self._segments if s.idx < start.segment_idx and s.sealed]
            gone_snapshots = [s for s in self._snapshots if s.seq < start.seq]
            self._segments = self._segments[len(gone_segments) :]
            self._snapshots = self._snapshots[len(gone_snapshots) :]
        names = [s.path.with_suffix(".names") for s in gone_segments]
        return [s.path for s in gone_segments] + names + [s.path for s in gone_snapshots]

    def _first_kept(self, retention: Retention, now_ns: int) -> KeptSnapshot | None:
        """The newest snapshot behind which enough history lies."""
        if retention.keep_bytes is None and retention.keep_seconds is None:
            return None
        for snapshot in reversed(self._snapshots):
            later = (s for s in self._segments if s.idx > snapshot.segment_idx and s.sealed)
            behind = sum(segment.num_bytes for segment in later)
            seconds = (now_ns - snapshot.time_ns) / 1e9
            if behind >= (retention.keep_bytes or 0) and seconds >= (retention.keep_seconds or 0):
                return snapshot
        return None

    def oldest(self, num_kept: int) -> KeptSegment | None:
        """Forget and return the oldest segment of a ring that has more than `num_kept`."""
        with self._lock:
            if len(self._segments) <= num_kept or not self._segments[0].sealed:
                return None
            return self._segments.pop(0)

    def stale_snapshots(self, num_kept: int) -> list[KeptSnapshot]:
        """Forget and return the snapshots of a ring whose segment is gone, or that are too many."""
        with self._lock:
            first = self._segments[0].idx if self._segments else 0
            late = [s for s in self._snapshots if s.segment_idx >= first][-num_kept:]
            stale = [s for s in self._snapshots if s not in late]
            self._snapshots = late
            return stale
