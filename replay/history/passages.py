"""The passages of a log between known states, and which of them may tell of something."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import attrs

from kvlife.log.names import StretchNames
from kvlife.replay.history.selecting import stretches_between
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.replaying.known import known_states


@attrs.frozen(eq=False)
class Passage:
    """Events [start, stop); the state at `start` is known. `names` has None for what is not."""

    start: int
    stop: int
    names: tuple[StretchNames | None, ...]

    def may_hold(self, test: Callable[[StretchNames], bool]) -> bool:
        """Whether an event may be here that `test` finds the names of."""
        return any(names is None or test(names) for names in self.names)


def passages_of(timeline: Timeline, stop: int) -> list[Passage]:
    """The whole of a timeline up to `stop`, in order, cut where states are known."""
    run = timeline.run
    cuts = [seq for seq in known_states(run) if timeline.first_seq <= seq < stop]
    named: dict[int, list[StretchNames | None]] = {start: [] for start in cuts}
    bounds = [*cuts, stop]
    place = 0
    for low, high, names in stretches_between(run, timeline.first_seq, stop):
        while place + 1 < len(cuts) and bounds[place + 1] <= low:
            place += 1
        # A stretch that goes on over a known state (whose record is elsewhere) counts for both.
        later = place
        while later < len(cuts) and bounds[later] < high:
            named[cuts[later]].append(names)
            later += 1
    return [Passage(low, high, tuple(named[low])) for low, high in pairwise(bounds)]
