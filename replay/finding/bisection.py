"""The first event after which something holds: known states are looked at, then a stretch folded.

What holds in a state says nothing of the states before it, unless it never ceases to hold. So three
ways of searching differ in what they can promise:

    snapshots  the first known state in which it holds, and the first event before that: no known
               state before it has it, but it may have held in between and ceased again
    halving    as that, but known states are halved, for what never ceases: few are looked at;
               where the last state has it not, it may have ceased, and all are looked at
    events     every state from the beginning on: the first event, for certain

Where no known state has it, every event is folded, and the answer is certain as well: but for a
test that costs far more than folding an event, which is made at known states alone then.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from kvlife.errors import ConfigError, LogError
from kvlife.events import Recorded
from kvlife.ledger import Change, Ledger
from kvlife.replay.finding.conditions import Holds
from kvlife.replay.history.timeline import Timeline

SEARCHES = ("snapshots", "halving", "events")
# A test that costs far more than folding an event is made at so many places of a stretch.
PLACES = 64

Reach = Callable[[int], None]


@attrs.frozen(kw_only=True)
class Search:
    """What was found, and how far one can build on it.

    `item` is the first event behind which it holds, and `ledger` the state there. Without an item,
    it holds in the known state before `seq`, where it held already when the search began, or
    behind events from `missing_from` on that are not in the log; with neither, nowhere. Every
    state from `certain_from` on was looked at.
    """

    item: Recorded | None = None
    ledger: Ledger | None = None
    seq: int | None = None
    missing_from: int | None = None
    certain_from: int = 0
    num_states: int = 0
    num_events: int = 0

    @property
    def found(self) -> bool:
        """Whether it holds anywhere."""
        return self.item is not None or self.seq is not None


class Searcher:
    """Searches the states [start, stop] of a timeline for the first in which something holds.

    `dear` says that `holds` costs far more than folding an event. `reach` hears how many seqs
    behind `start` the search has come.
    """

    def __init__(
        self,
        timeline: Timeline,
        holds: Holds,
        *,
        start: int | None = None,
        stop: int | None = None,
        search: str = SEARCHES[0],
        dear: bool = False,
        reach: Reach = lambda _num: None,
    ) -> None:
        if search not in SEARCHES:
            raise ConfigError(f"--search {search}: it is one of {', '.join(SEARCHES)}")
        self.timeline = timeline
        self.start = timeline.first_seq if start is None else start
        self.stop = timeline.last_seq if stop is None else min(stop, timeline.last_seq)
        self.search = search
        self._holds = holds
        self._dear = dear and search != "events"
        self._reach = reach
        self._num_states = self._num_events = 0

    def find(self) -> Search:
        """The first event behind which it holds, as far as this way of searching can say."""
        if self._holds_at(self.start):
            return self._search(Search(seq=self.start, certain_from=self.start))
        if self.search == "events":
            return self._search(self._fold(self.start, self.stop))
        known = [self.start, *self._between(self.start, self.stop), self.stop]
        place = self._halved(known) if self.search == "halving" else None
        place = place or self._walked(known)
        if place is not None:
            found = self._fold(known[place - 1], known[place])
            if not found.found:
                # A snapshot that is not the state behind the events before it.
                found = attrs.evolve(found, seq=known[place])
            return self._search(found)
        # No known state has it. The stretch behind the last is the likeliest, as a run ends by
        # what goes wrong in it; then every other one.
        found = self._fold(known[-2], self.stop)
        if not found.found and len(known) > 2 and not self._dear:
            found = self._fold(self.start, known[-2])
        return self._search(found)

    def _between(self, low: int, high: int) -> list[int]:
        return [seq for seq in self.timeline.run.snapshots if low < seq < high]

    def _walked(self, known: list[int]) -> int | None:
        """The first known state in which it holds, but for the last, which would cost a fold."""
        return next((n for n in range(1, len(known) - 1) if self._holds_at(known[n])), None)

    def _halved(self, known: list[int]) -> int | None:
        low, high = 0, len(known) - 1
        if not self._holds_at(known[high]):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._holds_at(known[middle]) else (middle, high)
        return high

    def _holds_at(self, seq: int) -> bool:
        self._num_states += 1
        self._reach(seq - self.start)
        try:
            ledger = self.timeline.state(seq)
        except LogError:
            # Under salvage, a state that is lost says nothing.
            if not self.timeline.run.salvage:
                raise
            return False
        return self._holds(ledger)

    def _fold(self, low: int, high: int) -> Search:
        """The first event of [low, high) behind which it holds; in the state at `low` it does not.

        A dear test is made now and then first, and closer where it has found something.
        """
        spacing = max((high - low) // PLACES, 1) if self._dear else 1
        found = self._folded(low, high, spacing)
        while spacing > 1 and found.item is not None:
            spacing = max(spacing // PLACES, 1)
            found = self._folded(found.certain_from, found.item.seq + 1, spacing)
        if self._dear and not found.found:
            return attrs.evolve(found, certain_from=high)
        return found if self._dear else attrs.evolve(found, certain_from=low)

    def _folded(self, low: int, high: int, spacing: int) -> Search:
        """As `_fold`, but tested behind every `spacing`th event, and the last.

        `certain_from` is the last seq before which it was seen not to hold.
        """
        sound = expected = low
        held_before: list[int] = []

        def before(ledger: Ledger, item: Recorded, _change: Change) -> None:
            # Behind a hole the fold goes on from a snapshot: what it has, no event has brought.
            if item.seq != expected and self._holds(ledger):
                held_before.append(item.seq)

        for moment in self.timeline.walk(low, high, before=before):
            if held_before:
                return Search(seq=held_before[0], missing_from=expected, certain_from=sound)
            expected = moment.item.seq + 1
            self._num_events += 1
            if not expected % 1024:
                self._reach(expected - self.start)
            if (expected - low) % spacing == 0 or expected == high:
                if self._holds(moment.ledger):
                    return Search(item=moment.item, ledger=moment.ledger, certain_from=sound)
                sound = expected
        missing = expected if expected < high else None
        return Search(missing_from=missing, certain_from=sound)

    def _search(self, found: Search) -> Search:
        return attrs.evolve(found, num_states=self._num_states, num_events=self._num_events)
