"""A run at one moment, for the commands that look at a state: the ledger, and what is missing."""

from __future__ import annotations

from pathlib import Path

import attrs

from kvlife.errors import ConfigError, LogError
from kvlife.events import Marked, Recorded, Violated
from kvlife.ledger import Ledger
from kvlife.log import LogRun
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.output.opening import open_log
from kvlife.replay.output.run_notes import run_notes
from kvlife.replay.replaying.known import known_states


@attrs.frozen(eq=False)
class View:
    """The state behind an event of a run.

    `last` is that event, None at the very beginning. `ended_by` is the violation that ended the
    run, where the state is that of its end. `told` is what was known of the log when it was opened.
    """

    run: LogRun
    timeline: Timeline
    ledger: Ledger
    last: Recorded | None
    ended_by: Violated | None
    told: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the log: that it was cut, is damaged, or being written."""
        return (*self.told, *run_notes(self.run), *self.timeline.notes)

    @property
    def seq(self) -> int:
        """The seq of the last event applied; -1 before the first."""
        return self.ledger.next_seq - 1

    @property
    def at_end(self) -> bool:
        """Whether no later state of the run is known."""
        return self.ledger.next_seq >= self.timeline.last_seq

    @property
    def idle_mark(self) -> bool:
        """Whether the run says of this very moment that nothing but cache should be held."""
        last = self.last
        if self.ended_by is not None:
            last = self.run.event(self.ended_by.seq)
        return last is not None and isinstance(last.event, Marked) and last.event.idle

    @property
    def moment(self) -> str:
        """The moment in words."""
        if self.last is None:
            return "before its first event"
        return f"after seq {self.seq} (step {self.last.step})"

    @property
    def outcome(self) -> str:
        """Whether the run was closed, goes on, or how it ended."""
        violated = self.timeline.violated
        if violated is not None:
            return f"ended by {violated.invariant} at seq {violated.seq}"
        if self.run.closed is not None:
            return "closed"
        return "being written" if self.run.live else "not closed"

    def since(self, time_ns: int) -> float:
        """How many seconds before this moment that was, by the clock of the events."""
        return (self.ledger.time_ns - time_ns) / 1e9


def look(log: Path, at: int | None, *, salvage: bool = False) -> View:
    """The state of a log after event `at` (None: the last that is known).

    Raises `ConfigError` for a seq that the log does not have, `LogError` and `EventError` for a log
    that cannot be followed to it.
    """
    run = open_log(log, salvage=salvage)
    timeline = Timeline(run)
    if at is not None and not max(timeline.first_seq - 1, 0) <= at < run.next_seq:
        raise ConfigError(_out_of_reach(run, timeline, at))
    violated = timeline.violated
    ended_by = violated if violated is not None and (at is None or at >= violated.seq) else None
    notes = _notes(run, timeline, ended_by)
    try:
        ledger = timeline.state(None if at is None else at + 1)
    except LogError as error:
        if at is not None or not salvage:
            raise
        ledger = _furthest(timeline)
        notes.append(f"{error}: shown is the last state that is known")
    last = timeline.last_event(ledger.next_seq)
    if last is not None:
        # A snapshot does not hold the time.
        ledger.time_ns = last.time_ns
    return View(run, timeline, ledger, last, ended_by, tuple(notes))


def _out_of_reach(run: LogRun, timeline: Timeline, at: int) -> str:
    if run.next_seq <= timeline.first_seq:
        return f"--at {at}: {run.path} has no events; leave --at out to see its empty state"
    first = max(timeline.first_seq - 1, 0)
    return (
        f"--at {at}: {run.path} has events up to seq {run.next_seq - 1}, and the states after"
        f" seqs {first} to {run.next_seq - 1} can be shown"
    )


def _notes(run: LogRun, timeline: Timeline, ended_by: Violated | None) -> list[str]:
    notes = []
    if not run.live and run.closed is None and timeline.violated is None:
        notes.append("the run was not closed (killed, or its end is missing)")
    if timeline.first_seq:
        notes.append(f"history begins at seq {timeline.first_seq}: what lies before is gone")
    if ended_by is not None:
        what = f"{ended_by.invariant} was broken by event {ended_by.seq}, which ended the run"
        how = "the state is that behind it" if ended_by.applied else "it was not applied"
        if timeline.last_seq > ended_by.seq + 1:
            how = f"found when the events up to {timeline.last_seq - 1} were applied"
        notes.append(f"{what}: {how}")
    return notes


def _furthest(timeline: Timeline) -> Ledger:
    """The last state that can be reached: from the newest snapshot on, as far as events follow."""
    for start in reversed(known_states(timeline.run)):
        try:
            ledger = timeline.state(start)
            for moment in timeline.walk(start):
                ledger = moment.ledger
        except LogError:
            continue
        return ledger
    raise LogError(f"{timeline.run.path}: no state of it can be read")
