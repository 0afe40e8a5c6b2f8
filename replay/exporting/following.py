"""Folding a log for what looks at each event and the states on both sides of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kvlife.events import Recorded
from kvlife.ledger import Change, Ledger
from kvlife.replay.history.timeline import Moment, Timeline


class Onlooker(Protocol):
    """What an export is made by."""

    def begin(self, ledger: Ledger, seq: int, time_ns: int, /) -> None:
        """Begin with a state: at the start, and where events are missing before `seq`."""

    def before(self, ledger: Ledger, item: Recorded, change: Change, /) -> None:
        """An event is about to be applied."""

    def after(self, moment: Moment) -> None:
        """It was applied."""

    def refused(self, item: Recorded, /) -> None:
        """An event that ended the run, where it was not applied, and the record that says so."""


class Following:
    """Events [start, stop) of a timeline, shown to an onlooker one by one."""

    def __init__(self, timeline: Timeline, onlooker: Onlooker) -> None:
        self._timeline = timeline
        self._onlooker = onlooker
        self._expected = -1

    def go(self, start: int, stop: int, advance: Callable[[int], None]) -> int:
        """Show them, and return how many they were."""
        num = 0
        after = self._onlooker.after
        for moment in self._timeline.walk(start, stop, before=self._before):
            after(moment)
            self._expected = moment.item.seq + 1
            num += 1
            if not num & 1023:
                advance(1024)
        if self._expected < 0:
            self._onlooker.begin(self._timeline.state(start), start, 0)
        for item in self._timeline.run.events(max(start, self._timeline.last_seq), stop):
            self._onlooker.refused(item)
            num += 1
        return num

    def _before(self, ledger: Ledger, item: Recorded, change: Change) -> None:
        if item.seq != self._expected:
            self._onlooker.begin(ledger, item.seq, item.time_ns)
        self._onlooker.before(ledger, item, change)
