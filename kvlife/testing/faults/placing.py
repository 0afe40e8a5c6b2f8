"""Places for faults: random ones of recorded runs, where a fault applies, each of them judged."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy

import attrs

from kvlife.config import PoolConfig
from kvlife.events import Recorded
from kvlife.ledger import Ledger
from kvlife.log import LogRun
from kvlife.testing.faults.fault import Fault, When
from kvlife.testing.faults.trial import Verdict, injection_at, judge

# So many times as many events are asked as places are wanted; and where that is too few, as some
# faults apply at one event in a hundred, all of them.
_ASKED = 16
# So many events may pass until one contradicts a fault.
_REACH = 2000


@attrs.frozen(eq=False)
class Course:
    """A sound run to put faults into: its pools, and its events in their order, from seq 0."""

    config: PoolConfig
    items: Sequence[Recorded]

    @classmethod
    def of_run(cls, run: LogRun) -> Course:
        """The whole of a recorded run."""
        return cls(run.header.config, list(run.events(0)))


@attrs.define
class Tally:
    """What became of one fault at all of its places."""

    fault: Fault
    verdicts: list[Verdict] = attrs.field(factory=list)

    @property
    def caught(self) -> int:
        """At how many places anything was found."""
        return sum(verdict.caught for verdict in self.verdicts)

    @property
    def rightly(self) -> int:
        """At how many the invariant that should be broken first was."""
        return sum(verdict.rightly for verdict in self.verdicts)

    @property
    def at_once(self) -> int:
        """At how many it was found at the first event that is wrong in itself."""
        return sum(verdict.at_once for verdict in self.verdicts)


Advance = Callable[[int], None]


def place_all(
    faults: Iterable[Fault],
    courses: Sequence[Course],
    *,
    num_places: int,
    seed: int,
    advance: Advance = lambda _num: None,
) -> list[Tally]:
    """Put each fault at so many random places of the courses, and judge what is found there.

    The same seed gives the same places. `advance` hears how many events were folded. A fault that
    applies at fewer events is put there again, by another chance.
    """
    tallies = {fault.name: Tally(fault) for fault in faults}
    draws = _choose(tallies, courses, num_places, seed, advance)
    while wanted := _next_places(tallies, draws, num_places):
        for idx, course in enumerate(courses):
            for ledger, at in _fold(course, advance):
                for name, draw in wanted.get((idx, at), ()):
                    tally = tallies[name]
                    chance = f"{seed} {name} {idx} {at} {draw}"
                    injection = injection_at(ledger, course.items[at].event, tally.fault, chance)
                    if injection is None:
                        continue
                    rest = course.items[at + 1 : at + _REACH]
                    verdict = judge(deepcopy(ledger), injection, rest)
                    if verdict is not None and len(tally.verdicts) < num_places:
                        tally.verdicts.append(verdict)
    return list(tallies.values())


Place = tuple[int, int]
# Places of one fault in the order in which they are tried, each with the number of its draw.
Draws = list[tuple[Place, int]]


def _next_places(
    tallies: dict[str, Tally], draws: dict[str, Draws], num: int
) -> dict[Place, list[tuple[str, int]]]:
    """For each place the faults to try there next, so many as are missing; twice as many again."""
    wanted: dict[Place, list[tuple[str, int]]] = {}
    for name, left in draws.items():
        missing = num - len(tallies[name].verdicts)
        again = 1 if missing == num else 2
        for place, draw in left[: missing * again]:
            wanted.setdefault(place, []).append((name, draw))
        del left[: missing * again]
    return wanted


def _choose(
    tallies: dict[str, Tally], courses: Sequence[Course], num: int, seed: int, advance: Advance
) -> dict[str, Draws]:
    """For each fault the places to try: some to spare, as not each of them will count."""
    applicable: dict[str, list[Place]] = {name: [] for name in tallies}
    for most in (_ASKED * num, None):
        lacking = [name for name, places in applicable.items() if len(places) < num]
        asked = _to_ask([tallies[name].fault for name in lacking], courses, most, seed)
        applicable |= {name: [] for name in lacking}
        for idx, course in enumerate(courses):
            for ledger, at in _fold(course, advance):
                for name in asked.get((idx, at), ()):
                    event, chance = course.items[at].event, f"{seed} {name} {idx} {at} 0"
                    if injection_at(ledger, event, tallies[name].fault, chance) is not None:
                        applicable[name].append((idx, at))
    chosen: dict[str, Draws] = {}
    for name, places in applicable.items():
        rng = random.Random(f"{seed} {name}")  # noqa: S311  # not a secret
        # Of what only later events show, much is put right before any does.
        spare = 15 * num if tallies[name].fault.when is When.LATER else num
        rng.shuffle(places)
        turns = range(num + spare if places else 0)
        chosen[name] = [(places[turn % len(places)], turn // len(places)) for turn in turns]
    return chosen


def _to_ask(
    faults: Iterable[Fault], courses: Sequence[Course], most: int | None, seed: int
) -> dict[Place, list[str]]:
    """For each place the faults to ask there: at `most` so many places each, chosen by chance."""
    by_type: dict[type, list[Place]] = {}
    for idx, course in enumerate(courses):
        for at, item in enumerate(course.items):
            by_type.setdefault(type(item.event), []).append((idx, at))
    asked: dict[Place, list[str]] = {}
    for fault in faults:
        places = [place for of in fault.of for place in by_type.get(of, ())]
        if most is not None and len(places) > most:
            rng = random.Random(f"{seed} ask {fault.name}")  # noqa: S311  # not a secret
            places = rng.sample(places, most)
        for place in places:
            asked.setdefault(place, []).append(fault.name)
    return asked


def _fold(course: Course, advance: Advance) -> Iterable[tuple[Ledger, int]]:
    """The state before each event of a sound run, one after another, in one ledger."""
    ledger = Ledger(course.config)
    for at, item in enumerate(course.items):
        yield ledger, at
        ledger.apply(item.event, item.seq, item.time_ns)
        if at % 256 == 0:
            advance(256)
