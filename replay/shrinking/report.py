"""What a shrink came to, in lines for people and as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs

from kvlife.config import Layout, compile_layout
from kvlife.errors import InvariantViolation
from kvlife.log import LogRun
from kvlife.replay.output.columns import Line, counted
from kvlife.replay.output.event_words import words_of
from kvlife.replay.shrinking.compact import weight
from kvlife.replay.shrinking.culprit import Culprit
from kvlife.replay.shrinking.shrinker import Shrinker

# The text lists so many events; the small log has all.
MAX_LISTED = 20


@attrs.frozen(eq=False, kw_only=True)
class Report:
    """A log, the event in it that is to blame, and the small log; `written` are folder and test."""

    run: LogRun
    culprit: Culprit
    shrinker: Shrinker
    violation: InvariantViolation
    written: tuple[Path, Path | None]
    seconds: float

    def as_json(self) -> dict[str, object]:
        """The object of `kvlife shrink --json`."""
        trial, (folder, test) = self.shrinker.trial, self.written
        num_events, rows, tokens, pages, _keys, _links = self._weight()
        return {
            "log": str(self.run.path),
            "invariant": self.violation.id,
            "event": type(trial.last).__name__,
            "seq_in_log": self.culprit.item.seq,
            "events_in_log": self.culprit.item.seq + 1,
            "seq": self.violation.seq,
            "events": num_events,
            "rows_named": rows,
            "tokens_named": tokens,
            "pages_named": pages,
            "complete": self.shrinker.complete,
            "interrupted": self.shrinker.interrupted,
            "same_story": self.shrinker.kept_story,
            "trials": self.shrinker.num_trials,
            "seconds": round(self.seconds, 3),
            "output": str(folder),
            "test": None if test is None else str(test),
        }

    def _weight(self) -> tuple[int, ...]:
        return weight((*self.shrinker.trial.events, self.shrinker.trial.last))

    def lines(self) -> Iterator[Line]:
        """Style and text of each line."""
        item, shrinker, (folder, test) = self.culprit.item, self.shrinker, self.written
        trial = shrinker.trial
        yield "bold", f"shrink of {self.run.path}"
        yield (
            "bold red",
            f"violation   {self.violation.id} at seq {item.seq}, by {type(item.event).__name__}",
        )
        num_events = len(trial.events) + 1
        yield "", f"left        {num_events:,} of {counted(item.seq + 1, 'event')}, in {folder}"
        if test is not None:
            yield "", f"test        {test}"
        trials = counted(shrinker.num_trials, "trial")
        yield "", f"took        {self.seconds:.1f} s, {trials}; {self._end()}"
        if not shrinker.kept_story:
            yield (
                "yellow",
                "note        it breaks in another way than the log did; --same-story keeps the way",
            )
        yield "bold", "the events"
        shown = (*trial.events, trial.last)[-MAX_LISTED:]
        if num_events > len(shown):
            yield "", f"  ({num_events - len(shown)} more before these)"
        for seq, event in enumerate(shown, num_events - len(shown)):
            style = "red" if event is trial.last else ""
            yield style, f"  seq {seq}  {words_of(event, self._layout())}"
        yield "red", f"  {self.violation}"

    def _layout(self) -> Layout:
        return compile_layout(self.shrinker.best.config)

    def _end(self) -> str:
        if self.shrinker.complete:
            return "nothing more can be taken"
        return "interrupted" if self.shrinker.interrupted else "stopped when the time was up"
