"""The times of events in words."""

from __future__ import annotations

from datetime import UTC, datetime

# Times behind this are those of a clock on a wall, not of a simulation.
_WALL_NS = 10**17
# What a date can be made of.
_LAST_NS = 253_402_300_800 * 10**9


def clock(time_ns: int) -> str:
    """A time of events: of the day (UTC) where it is that of a wall clock, else in seconds."""
    if not _WALL_NS <= time_ns < _LAST_NS:
        return f"{time_ns / 1e9:.6f} s"
    whole, rest = divmod(time_ns, 10**9)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%d %H:%M:%S}.{rest // 1000:06d}"
