"""Delta debugging: parts of a program are taken away as long as the same invariant breaks first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

import attrs

from kvlife.config import CacheGroup, PoolConfig
from kvlife.invariants import Finding
from kvlife.replay.shrinking.compact import forms, weight
from kvlife.replay.shrinking.cutting import Cut, cut_tokens, without_lives, without_places
from kvlife.replay.shrinking.program import Program
from kvlife.replay.shrinking.smaller import boundaries, sharing, smaller_events, thinner_events
from kvlife.replay.shrinking.trial import Trial, run_trial

Part = TypeVar("Part")
# Told how much of the first program is gone: its number of events then, and now.
Watch = Callable[[int, int], None]


class _TimeUp(Exception):
    """The time that was given is over."""


@attrs.frozen(eq=False, kw_only=True)
class _Standing:
    """A program that breaks what it should, its trial, and how large it is."""

    trial: Trial
    finding: Finding
    program: Program
    weight: tuple[int, ...]


class Shrinker:
    """Shrinks a program; `best` is what it has come to, at any time.

    `is_over` is asked before each trial whether the time is up. Under `same_story` the evidence
    must also be the same in kind: the reason, and the kinds of the events that touched last what
    is named. `complete` says whether nothing more could be taken, `interrupted` that the user would
    not wait for that.
    """

    def __init__(
        self,
        program: Program,
        *,
        same_story: bool = False,
        is_over: Callable[[], bool] = lambda: False,
        watch: Watch = lambda _first, _now: None,
    ) -> None:
        """Start from a program that breaks an invariant, else it is a `ValueError`."""
        trial = run_trial(program)
        if trial.finding is None:
            raise ValueError("a program that breaks nothing cannot be shrunk")
        self._story = _story(trial, trial.finding)
        self._same_story = same_story
        self._is_over = is_over
        self._watch = watch
        self._first = len(trial.events) + 1
        self.num_trials = 0
        self.complete = self.interrupted = False
        self._take(program.config, trial, trial.finding)

    @property
    def best(self) -> Program:
        """What it has come to."""
        return self._now.program

    @property
    def trial(self) -> Trial:
        """The trial of the best: its events as they are written."""
        return self._now.trial

    @property
    def weight(self) -> tuple[int, ...]:
        """The number of events, rows, tokens, pages, keys and links that are left."""
        return self._now.weight

    def _take(self, config: PoolConfig, trial: Trial, finding: Finding) -> None:
        # In one assignment, which an interrupt finds done or not.
        self._now = _Standing(
            trial=trial,
            finding=finding,
            program=Program.of(config, trial.events, trial.last),
            weight=weight((*trial.events, trial.last)),
        )
        self._watch(self._first, len(trial.events) + 1)

    def run(self) -> None:
        """Take away what can be taken; an interrupt, or the time, ends it with the best so far."""
        try:
            self._renumber(spare=16)
            before = None
            while before != self.weight:
                before = self.weight
                self._round()
            self._renumber(spare=0)
            self.complete = True
        except _TimeUp:
            return
        except KeyboardInterrupt:
            self.interrupted = True

    @property
    def kept_story(self) -> bool:
        """Whether what is left breaks for the same reason, touched last by the same kinds."""
        return self._story == _story(self.trial, self._now.finding)

    def _round(self) -> None:
        self._thin(lambda program: range(len(program.last.lives)), without_places)
        self._thin(_lives, without_lives)
        self._thin(_kinds, _without_kinds)
        self._thin(lambda program: range(len(program.pieces)), _without_pieces)
        self._each_of(thinner_events)
        self._cut_pages()
        self._cut_tokens()
        self._each_of(smaller_events)
        self._renumber(spare=16)

    def _thin(
        self,
        parts_of: Callable[[Program], Sequence[Part]],
        without: Callable[[Program, Collection[Part]], Program],
    ) -> None:
        """Take parts away: all, then halves, quarters and so on down to single ones."""
        size = len(parts_of(self.best))
        while size:
            stop = len(parts_of(self.best))
            while stop > 0:
                parts = parts_of(self.best)
                stop = min(stop, len(parts))
                start = max(stop - size, 0)
                if start < stop:
                    self._try(without(self.best, parts[start:stop]))
                stop = start
            size //= 2

    def _each_of(self, ways: Callable[[Program], list[Callable[[], Program]]]) -> None:
        """Try single changes one after another, and those of the new program where one succeeds."""
        number = 0
        while number < len(found := ways(self.best)):
            if not self._try(found[number]()):
                number += 1

    def _cut_pages(self) -> None:
        """Cut whole pages out of each life, and of those that share them with it."""
        align = max(group.page_size or self.best.config.page_size for group in self._groups)
        for number in range(len(_all_lives(self.best))):
            self._thin(partial(_page_cuts, number=number, align=align), _cut_between)

    @property
    def _groups(self) -> tuple[CacheGroup, ...]:
        return self.best.config.groups

    def _cut_tokens(self) -> None:
        """Cut tokens between any two lengths of a life, as many as can go."""
        number = place = 0
        while number < len(lives := _all_lives(self.best)):
            ends = boundaries(self.best, lives[number])
            if place + 1 >= len(ends):
                number, place = number + 1, 0
                continue
            low, high = ends[place], ends[place + 1]
            size = high - low
            while size and not self._try_cut(lives[number], Cut(high - size, high)):
                size //= 2
            if not size:
                place += 1

    def _try_cut(self, life: int, cut: Cut) -> bool:
        together = sharing(self.best, life, cut)
        for names in (together, {life}) if len(together) > 1 else (together,):
            shorter = cut_tokens(self.best, names, cut)
            if self._try(shorter):
                return True
            capacity = shorter.config.max_context_len - (cut.high - cut.low)
            if capacity > 0 and self._story[0] == "ladder-order":
                config = attrs.evolve(shorter.config, max_context_len=capacity)
                if self._try(attrs.evolve(shorter, config=config)):
                    return True
        return False

    def _try(self, program: Program) -> bool:
        """Take the program up if it breaks the same, and is smaller."""
        trial = self._tried(program)
        if trial is None or weight((*trial.events, trial.last)) >= self.weight:
            return False
        assert trial.finding is not None  # _tried looked
        self._take(program.config, trial, trial.finding)
        return True

    def _tried(self, program: Program) -> Trial | None:
        if self._is_over():
            raise _TimeUp
        self.num_trials += 1
        trial = run_trial(program)
        if trial.finding is None:
            return None
        story = _story(trial, trial.finding)
        same = story == self._story if self._same_story else story[0] == self._story[0]
        return trial if same else None

    def _renumber(self, *, spare: int) -> None:
        """Write the program in smaller numbers, each kind of them on its own."""
        for form in forms((*self.trial.events, self.trial.last), spare):
            config, found = form((self.best.config, (*self.trial.events, self.trial.last)))
            trial = self._tried(Program.of(config, found[:-1], found[-1]))
            if trial is None or trial.finding is None:
                continue
            if len(trial.events) == len(self.trial.events):
                self._take(config, trial, trial.finding)


def _story(trial: Trial, finding: Finding) -> tuple[str, ...]:
    """What is broken, the reason without its numbers, page states, and what came before."""
    why = "".join(sign for sign in str(finding.evidence.get("why", "")) if not sign.isdigit())
    states = finding.evidence.get("states")
    kinds = sorted(set(states)) if isinstance(states, list) else []
    return finding.id, why, *kinds, *trial.touched_by


def _lives(program: Program) -> list[int]:
    """The lives that do something before the faulty event."""
    return list(dict.fromkeys(name for piece in program.pieces for name in piece.lives))


def _all_lives(program: Program) -> list[int]:
    """All lives, that of the faulty event's own binding as well."""
    return list(dict.fromkeys((*_lives(program), *(n for n in program.last.lives if n >= 0))))


def _kinds(program: Program) -> list[type]:
    return list(dict.fromkeys(type(piece.event) for piece in program.pieces))


def _without_kinds(program: Program, gone: Collection[type]) -> Program:
    pieces = tuple(piece for piece in program.pieces if type(piece.event) not in gone)
    return attrs.evolve(program, pieces=pieces)


def _without_pieces(program: Program, gone: Collection[int]) -> Program:
    pieces = tuple(piece for place, piece in enumerate(program.pieces) if place not in gone)
    return attrs.evolve(program, pieces=pieces)


def _page_cuts(program: Program, number: int, align: int) -> list[tuple[int, Cut]]:
    """The whole pages of a life, as cuts."""
    lives = _all_lives(program)
    if number >= len(lives):
        return []
    top = boundaries(program, lives[number])[-1]
    return [(lives[number], Cut(low, low + align)) for low in range(0, top - align + 1, align)]


def _cut_between(program: Program, gone: Collection[tuple[int, Cut]]) -> Program:
    """The cuts lie side by side, and are made as one."""
    parts = list(gone)
    life, whole = parts[0][0], Cut(parts[0][1].low, parts[-1][1].high)
    return cut_tokens(program, sharing(program, life, whole), whole)
