"""How a log is written: the choices of one `LogWriter`, checked."""

from __future__ import annotations

import attrs

from kvlife.errors import ConfigError
from kvlife.log.retention import Retention
from kvlife.log.wire import MAX_PACKED_BYTES, MIN_SEGMENT_BYTES


@attrs.frozen(kw_only=True)
class WriterOptions:
    """As `LogWriter` takes them; the properties are what follows from them."""

    retention: Retention
    sync: str | float
    on_full: str
    segment_bytes: int
    snapshot_every_bytes: int
    compress: bool

    def __attrs_post_init__(self) -> None:
        sync, size = self.sync, self.segment_bytes
        pause = isinstance(sync, int | float) and not isinstance(sync, bool) and sync > 0
        if sync not in ("none", "group") and not pause:
            raise ConfigError(f'sync must be "none", "group" or milliseconds above 0, got {sync!r}')
        if self.on_full not in ("stop", "gap"):
            raise ConfigError(f'on_full must be "stop" or "gap", got {self.on_full!r}')
        if not MIN_SEGMENT_BYTES <= size <= MAX_PACKED_BYTES:
            bounds = f"[{MIN_SEGMENT_BYTES}, {MAX_PACKED_BYTES}]"
            raise ConfigError(f"segment_bytes must be in {bounds}, got {size}")
        if self.snapshot_every_bytes <= 0:
            raise ConfigError(
                f"snapshot_every_bytes must be above 0, got {self.snapshot_every_bytes}"
            )

    @property
    def durable(self) -> bool:
        """Whether anything shall survive the death of the machine."""
        return self.sync != "none"

    @property
    def sync_ns(self) -> int | None:
        """The pause between syncs in the background; None where there are none."""
        return None if isinstance(self.sync, str) else round(self.sync * 1e6)

    @property
    def file_bytes(self) -> int:
        """The size of a segment's file."""
        return self.retention.segment_bytes(self.segment_bytes)

    @property
    def snapshot_distance_bytes(self) -> int:
        """The least distance of two snapshots."""
        return self.retention.snapshot_every_bytes(self.snapshot_every_bytes)

    @property
    def events_per_snapshot_byte(self) -> int:
        """How many bytes of events each byte of snapshots asks for.

        A ring has space set apart for two snapshots, and without one in it nothing can be replayed.
        """
        return 2 if self.retention.ring_bytes is None else 0
