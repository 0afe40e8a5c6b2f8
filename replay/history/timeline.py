"""The states of a run at any seq: from the nearest snapshot, and a fold of the events behind it.

Nothing is checked here: `apply` is total on well-formed events, so that the states behind a broken
invariant can be looked at as well.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress

import attrs

from kvlife.config import compile_layout, refuse_beyond_memory, with_pages
from kvlife.errors import ConfigError, EventError, LogError
from kvlife.events import Recorded, Resized, Violated, check_structure
from kvlife.ledger import Change, Ledger, derive
from kvlife.log import LogRun
from kvlife.replay.replaying.known import (
    KNOWN_KINDS,
    known_states,
    refuse_unknown,
    restored,
)

Before = Callable[[Ledger, Recorded, Change], None]


@attrs.define
class Moment:
    """One event that was just applied: the event, what it changed, and the state behind it.

    The ledger is the walk's own and goes on with it: look, and keep no reference.
    """

    item: Recorded
    change: Change
    ledger: Ledger


class Timeline:
    """A run that can be looked at in every state it had.

    The state *at* a seq is that before its event: after all events below it. States are known
    for seqs in [first_seq, last_seq]: from the log's beginning, or the oldest snapshot where
    earlier history is gone, to its end, or to the violation that ended the run: what a guard
    refused was never applied, and nothing behind it either. What a device found late, or an audit,
    ended the run behind events that were applied.
    """

    def __init__(self, run: LogRun) -> None:
        """Read no event; raises `LogError` where no state is known."""
        self.run = run
        refuse_beyond_memory(run.layout)
        self._known = known_states(run)
        if not self._known:
            raise LogError(
                f"{run.path}: history begins at seq {run.begins_at} without a snapshot:"
                " there is no state to start from"
            )
        self.first_seq = self._known[0]
        # Snapshots that could not be read, and why: of those that were asked for so far.
        self._passed: dict[int, LogError] = {}
        # The event by which the last `state` was reached, which is often asked for next.
        self._newest: Recorded | None = None
        self.violated = self._last_violation()
        self.last_seq = run.next_seq
        if self.violated is not None:
            self.last_seq = self._end_of(self.violated)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the states that were asked for so far."""
        return tuple(
            f"the snapshot of seq {seq} is of no use, the events from an earlier state on were"
            f" folded instead: {error}"
            for seq, error in sorted(self._passed.items())
        )

    def state(self, seq: int | None = None) -> Ledger:
        """The state before event `seq` (None: the last one), as a ledger of the caller's own.

        Raises `ConfigError` for a seq that the log does not reach, `LogError` and `EventError` for
        a log that cannot be followed to it.
        """
        wanted = self.last_seq if seq is None else self._reached(seq)
        ledger = self._nearest(wanted)
        for moment in self._walk(ledger, wanted - 1, wanted):
            ledger, self._newest = moment.ledger, moment.item
        if ledger.next_seq < wanted:
            raise LogError(
                f"{self.run.path}: events [{ledger.next_seq}, {wanted}) are missing, so the state"
                f" at seq {wanted} is not known"
            )
        return ledger

    def onward(self, ledger: Ledger, seq: int) -> Ledger:
        """The state before event `seq`, folded on from an earlier state of this run."""
        wanted = min(seq, self.last_seq)
        # A state may lie inside a group of events.
        for item in self.run.events(ledger.next_seq, wanted):
            if item.seq != ledger.next_seq or type(item.event) not in KNOWN_KINDS:
                break
            _look_at(ledger, item)
            ledger.apply(item.event, item.seq, item.time_ns)
        return ledger if ledger.next_seq == wanted else self.state(seq)

    def walk(
        self, start: int | None = None, stop: int | None = None, *, before: Before | None = None
    ) -> Iterator[Moment]:
        """Fold the events with seq in [start, stop), one after another.

        `before` sees each event and what it will change ahead of its application. Where events
        are missing (a gap, or damage under salvage) it goes on from the next snapshot, and the
        seqs jump.
        """
        low = self.first_seq if start is None else self._reached(start)
        high = self.last_seq if stop is None else min(stop, self.last_seq)
        return self._walk(self._nearest(low), low, high, before)

    def last_event(self, seq: int) -> Recorded | None:
        """The last event below `seq`, which led to the state there."""
        if self._newest is not None and self._newest.seq == seq - 1:
            return self._newest
        return self.run.event(seq - 1) if seq > self.first_seq else None

    def _reached(self, seq: int) -> int:
        if self.first_seq <= seq <= self.run.next_seq:
            return min(seq, self.last_seq)
        raise ConfigError(
            f"seq {seq} is not in {self.run.path}: its states are known from seq {self.first_seq}"
            f" to {self.last_seq}"
        )

    def _last_violation(self) -> Violated | None:
        mark = self.run.violated()
        # One that names no event before it ends nothing.
        fits = mark is not None and self.first_seq <= mark.seq < self.run.next_seq - 1
        return mark if fits else None

    def _end_of(self, mark: Violated) -> int:
        """The seq before which all was applied, where this violation ended the run."""
        end = mark.seq + int(mark.applied)
        if mark.applied:
            with suppress(LogError):
                later = next(self.run.groups(mark.seq + 1), None)
                # The mark has the last seq; a group that lies before it was recorded later.
                if later is not None and later[0].seq < self.run.next_seq - 1:
                    return self.run.next_seq - 1
        return end

    def _nearest(self, seq: int) -> Ledger:
        """The newest known state at or before `seq`; a snapshot that cannot be read is passed."""
        for known in reversed(self._known[: bisect_right(self._known, seq)]):
            if known == 0:
                break
            try:
                return restored(self.run, self.run.snapshot(known), known)
            except LogError as error:
                self._passed[known] = error
        if self.run.begins_at:
            raise LogError(
                f"{self.run.path}: no snapshot at or before seq {seq} can be read, and history"
                f" begins at the first of them: {self._passed[self.first_seq]}"
            )
        return Ledger(self.run.header.config)

    def _walk(
        self, ledger: Ledger, low: int, stop: int, before: Before | None = None
    ) -> Iterator[Moment]:
        """From the known state `ledger` on; only what lies at or above `low` is shown."""
        checks = ledger.layout != compile_layout(ledger.config)
        for item in self._events(ledger, stop):
            event = item.event
            if item.seq != ledger.next_seq:
                ledger = restored(self.run, self.run.snapshot(item.seq), item.seq)
                checks = True
            if checks or isinstance(event, Resized):
                checks = True
                _look_at(ledger, item)
            change = derive(ledger, event)
            if before is not None and item.seq >= low:
                before(ledger, item, change)
            ledger.apply(event, item.seq, item.time_ns, change)
            if item.seq >= low:
                yield Moment(item, change, ledger)

    def _events(self, ledger: Ledger, stop: int) -> Iterator[Recorded]:
        """The events up to `stop`, those left out that no known state leads up to."""
        expected = ledger.next_seq
        lost = False
        for group in self.run.groups(expected, stop, layout=ledger.layout):
            first = group[0].seq
            if lost or first != expected:
                lost = first not in self.run.snapshots
            if lost and not self.run.salvage:
                raise LogError(
                    f"{self.run.path}: events [{expected}, {first}) are missing, and no snapshot"
                    " follows them"
                )
            expected = group[-1].seq + 1
            if any(type(item.event) not in KNOWN_KINDS for item in group):
                lost = True
                if not self.run.salvage:
                    refuse_unknown(group)
            if not lost:
                yield from (item for item in group if item.seq < stop)


def _look_at(ledger: Ledger, item: Recorded) -> None:
    """Refuse an event that does not fit the pools as they are by now."""
    try:
        check_structure(item.event, ledger.layout)
        if isinstance(item.event, Resized):
            refuse_beyond_memory(
                with_pages(ledger.layout, {item.event.space: item.event.num_pages})
            )
    except (EventError, ConfigError) as error:
        raise EventError(f"seq {item.seq}: {error}") from error
