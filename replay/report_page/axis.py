"""The horizontal axis of a report: the run's time, or its events, cut into columns."""

from __future__ import annotations

import attrs

from kvlife.config import Layout
from kvlife.errors import ConfigError, KvLifeError
from kvlife.log import LogRun

KINDS = ("time", "events")

MAX_COLUMNS = 600
# Fewer where looking at the state that often would take long beside the replay itself.
MIN_COLUMNS = 240
_REPLAY_NS = 50_000  # of an event, about
_LOOK_NS, _LOOK_PAGE_NS = 300_000, 25  # at a state, and at each of its pages, about
_SHARE = 0.1


@attrs.frozen(kw_only=True)
class Axis:
    """Columns of equal width over [start, stop), in nanoseconds or seqs.

    Column k is [border(k), border(k + 1)).
    """

    kind: str
    start: int
    stop: int
    num_columns: int

    def border(self, column: int) -> int:
        """Where a column begins."""
        return self.start + (self.stop - self.start) * column // self.num_columns

    def column_of(self, place: int) -> int:
        """The column in which a place lies; the first or last one for a place off the axis."""
        within = min(max(place, self.start), self.stop - 1) - self.start
        column = within * self.num_columns // (self.stop - self.start)
        while column + 1 < self.num_columns and self.border(column + 1) <= within + self.start:
            column += 1
        return column


def axis_of(run: LogRun, first_seq: int, wanted: str | None = None) -> Axis:
    """The axis for the events of a run from `first_seq` on.

    Time, where the run's clock went forward and nothing else is wanted; else events.
    """
    if wanted is not None and wanted not in KINDS:
        raise ConfigError(f"no such axis: {wanted!r}; there are {', '.join(KINDS)}")
    stop_seq = max(run.next_seq, first_seq + 1)
    columns = _columns(stop_seq - first_seq, run.layout)
    if wanted != "events":
        start, stop = _time_of(run, first_seq), _time_of(run, run.next_seq - 1)
        if start is not None and stop is not None and stop > start:
            columns = min(columns, stop + 1 - start)
            return Axis(kind="time", start=start, stop=stop + 1, num_columns=columns)
        if wanted == "time":
            raise ConfigError(
                f"{run.path}: the clock of this run did not go forward: use --axis events"
            )
    columns = min(columns, stop_seq - first_seq)
    return Axis(kind="events", start=first_seq, stop=stop_seq, num_columns=columns)


def _columns(num_events: int, layout: Layout) -> int:
    look_ns = _LOOK_NS + _LOOK_PAGE_NS * sum(space.num_pages for space in layout.spaces)
    affordable = int(_SHARE * _REPLAY_NS * num_events / look_ns)
    return min(max(affordable, MIN_COLUMNS), MAX_COLUMNS)


def _time_of(run: LogRun, seq: int) -> int | None:
    try:
        recorded = run.event(seq)
    except KvLifeError:
        return None  # the replay says what is wrong with the log
    return None if recorded is None else recorded.time_ns
