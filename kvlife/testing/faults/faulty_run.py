"""A recorded run written again with a fault in it, as the observer of a live run would write it."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path

import attrs

from kvlife.engine import Observer
from kvlife.errors import ConfigError, InvariantViolation
from kvlife.events import Recorded
from kvlife.ledger import Ledger
from kvlife.log import LogRun, LogWriter, runs
from kvlife.testing.faults.fault import Fault, Injection
from kvlife.testing.faults.trial import Verdict, injection_at, judge

# So many places are asked in the first fold of the run, and 16 times as many in each that follows.
_ASKED = 256
# Of those where the fault applies, so many are tried; of a lost event not all are contradicted.
_TRIED = 8
# So many events may pass until one contradicts it.
_REACH = 20_000


@attrs.frozen(kw_only=True)
class Placed:
    """A fault in a log.

    `path` is the run's folder; the faulty events stand from `first_seq` on, in place of one. The
    event at `wrong_seq` is the first that is wrong in itself, and breaks `invariant` first.
    """

    path: Path
    fault: Fault
    first_seq: int
    wrong_seq: int
    invariant: str


def write_faulty_run(
    run: LogRun, fault: Fault, path: str | os.PathLike[str], *, seed: int, first_seq: int = 0
) -> Placed:
    """Write the run below `path` once more, with the fault at a random place from `first_seq` on.

    The checker raises, so the log ends with the violation that a live run would have ended with.
    Raises `ConfigError` for a fault that applies nowhere in this run, and for one in the ledger's
    columns, which no log can show.
    """
    items = list(run.events(0))
    at, verdict = _place(run, fault, items, seed, first_seq)
    injection = _injection(_state(run, items, at), items, fault, seed, at)
    assert injection is not None  # it applied there before
    now = _Clock()
    observer = Observer(run.header.config, log=LogWriter(path), clock=now)
    try:
        for group in _groups(run, at, injection):
            now.time_ns, observer.step = group[0].time_ns, group[0].step
            observer.observe(*(item.event for item in group))
    except InvariantViolation as found:
        if (found.seq, found.id) != (verdict.found_seq, verdict.found):
            raise AssertionError(f"{verdict} was expected, and {found.id} found") from found
    else:
        observer.close()
    return Placed(
        path=runs(path)[-1],
        fault=fault,
        first_seq=at,
        wrong_seq=verdict.wrong_seq,
        invariant=verdict.expected,
    )


class _Clock:
    time_ns = 0

    def __call__(self) -> int:
        return self.time_ns


def _place(
    run: LogRun, fault: Fault, items: Sequence[Recorded], seed: int, first_seq: int
) -> tuple[int, Verdict]:
    """A random place where the fault applies, and that some event contradicts."""
    rng = random.Random(f"{seed} {fault.name}")  # noqa: S311  # not a secret
    places = [at for at in range(first_seq, len(items)) if type(items[at].event) in fault.of]
    rng.shuffle(places)
    num_asked, num_tried = _ASKED, _TRIED
    while places:
        asked, places = places[:num_asked], places[num_asked:]
        good = {at for at, _ in _asking(run, fault, items, asked, seed)}
        tried = [at for at in asked if at in good][:num_tried]
        num_asked, num_tried = 16 * num_asked, 4 * num_tried
        verdicts = {
            at: verdict
            for at, ledger in _asking(run, fault, items, tried, seed)
            if (verdict := _verdict(ledger, items, fault, seed, at)) is not None
        }
        for at in tried:
            if at in verdicts:
                return at, verdicts[at]
    raise ConfigError(f"fault {fault.name!r} applies at no event of {run.path} from {first_seq} on")


def _asking(
    run: LogRun, fault: Fault, items: Sequence[Recorded], asked: Sequence[int], seed: int
) -> Iterator[tuple[int, Ledger]]:
    """Those of the places at which the fault applies, each with the state there."""
    ledger, wanted = Ledger(run.header.config), set(asked)
    for at, item in enumerate(items[: max(wanted, default=-1) + 1]):
        if at in wanted and _injection(ledger, items, fault, seed, at) is not None:
            yield at, ledger
        ledger.apply(item.event, item.seq, item.time_ns)


def _injection(
    ledger: Ledger, items: Sequence[Recorded], fault: Fault, seed: int, at: int
) -> Injection | None:
    injection = injection_at(ledger, items[at].event, fault, f"{seed} {fault.name} {at}")
    if injection is not None and injection.edit is not None:
        raise ConfigError(
            f"fault {fault.name!r} lies in the ledger's columns, in no event of a log"
        )
    return injection


def _verdict(
    ledger: Ledger, items: Sequence[Recorded], fault: Fault, seed: int, at: int
) -> Verdict | None:
    injection = _injection(ledger, items, fault, seed, at)
    assert injection is not None  # it applies there
    return judge(deepcopy(ledger), injection, items[at + 1 : at + _REACH])


def _state(run: LogRun, items: Sequence[Recorded], at: int) -> Ledger:
    ledger = Ledger(run.header.config)
    for item in items[:at]:
        ledger.apply(item.event, item.seq, item.time_ns)
    return ledger


def _groups(run: LogRun, at: int, injection: Injection) -> Iterator[list[Recorded]]:
    """The groups of the run, with the fault's events in place of event `at`."""
    for group in run.groups(0):
        first = group[0].seq
        if not first <= at < first + len(group):
            yield group
            continue
        old = group[at - first]
        faulty = [attrs.evolve(old, event=event) for event in injection.events]
        changed = [*group[: at - first], *faulty, *group[at - first + 1 :]]
        if changed:
            yield changed
