"""A run written again under aliases: the same events, states and end, and nobody's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs

from kvlife.errors import LogError
from kvlife.events import Event, Recorded
from kvlife.ledger import FrozenState, renamed
from kvlife.log import CloseMark, LogRun, LogWriter, UnknownEvent
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.packing.aliases import Aliases

Advance = Callable[[int], None]


@attrs.frozen(eq=False)
class _Ready:
    """A state that a writer takes as a snapshot."""

    seq: int
    frozen: FrozenState

    def freeze(self) -> FrozenState:
        return self.frozen

    def release(self) -> None:
        pass


@contextmanager
def redacted(run: LogRun, start: int, stop: int | None, advance: Advance) -> Iterator[Path]:
    """The folder of the same run under aliases, as long as it is looked at.

    It begins at `start`, and goes up to `stop` or to the end. Raises `LogError` where no state
    follows missing events, and for an event that cannot be read: nobody knows what it names.
    """
    aliases = Aliases()
    created_ns = run.header.created_ns or 0
    with (
        TemporaryDirectory(prefix="kvlife-redacted-") as folder,
        LogWriter(folder, clock_ns=lambda: created_ns) as writer,
    ):
        path = writer.start_at(aliases.header(run.header), start)
        copy = _Copy(run, writer, aliases)
        copy.events(start, stop, advance)
        if stop is None and run.closed is not None:
            copy.close(run.closed)
        else:
            # What was not closed is looked at before it is.
            writer.wait()
        if writer.problems:
            raise LogError("; ".join(writer.problems))
        yield path


@attrs.frozen(eq=False)
class _Copy:
    """Writes a run again, event by event and state by state."""

    run: LogRun
    writer: LogWriter
    aliases: Aliases

    def events(self, start: int, stop: int | None, advance: Advance) -> None:
        if start in self.run.snapshots:
            self._snapshot(start)
        for group in self.run.groups(start, stop):
            first = group[0]
            if first.seq != self.writer.next_seq:
                self._go_on_behind_a_hole(first.seq)
            elif first.seq > start and first.seq in self.run.snapshots:
                # Without it reading begins at an earlier one.
                with suppress(LogError):
                    self._snapshot(first.seq)
            events = [self._event(item) for item in group]
            self.writer.append(first.seq, first.step, first.time_ns, events)
            advance(len(group))

    def close(self, mark: CloseMark) -> None:
        if mark.next_seq > self.writer.next_seq:
            self.writer.skip(mark.next_seq - self.writer.next_seq)
        self.writer.close(None if mark.digest is None else self._last_digest(mark.digest))

    def _last_digest(self, recorded: int) -> int | None:
        """The last state's, off by as much as the recorded one is; None where it is not known."""
        try:
            state = Timeline(self.run).state(self.run.next_seq).snapshot().freeze()
        except LogError:
            return None
        return renamed(state, self.aliases).digest ^ state.digest ^ recorded

    def _go_on_behind_a_hole(self, seq: int) -> None:
        hole = f"events [{self.writer.next_seq}, {seq}) are missing"
        if seq not in self.run.snapshots:
            raise LogError(
                f"{self.run.path}: {hole}, and no snapshot follows them: use --to to pack what lies"
                " before them, or --around to begin behind them"
            )
        self.writer.skip(seq - self.writer.next_seq)
        self._snapshot(seq)

    def _snapshot(self, seq: int) -> None:
        # The writer lets a snapshot go where the one before it is not done.
        self.writer.wait()
        self.writer.snapshot(_Ready(seq, renamed(self.run.snapshot(seq), self.aliases)))

    def _event(self, item: Recorded) -> Event:
        event: Event | UnknownEvent = item.event
        if isinstance(event, UnknownEvent):
            raise LogError(
                f"{self.run.path}: seq {item.seq} is an event of the unknown kind {event.code}, and"
                " nobody knows what names it holds: redact with a newer kvlife, or use --to or"
                " --around to leave it out"
            )
        return self.aliases.event(event)
