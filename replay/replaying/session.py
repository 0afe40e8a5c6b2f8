"""A whole replay: a run opened, followed in one process or in several, and held to its end."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import closing, contextmanager
from functools import lru_cache

import attrs

from kvlife.config import refuse_beyond_memory
from kvlife.errors import ConfigError
from kvlife.invariants import Checker
from kvlife.log import LogRun, RunHeader, open_run
from kvlife.replay.replaying.follow import Follower, Watch
from kvlife.replay.replaying.outcome import Difference, Outcome, PartOutcome, join_parts
from kvlife.replay.replaying.parts import PARTS_PER_JOB, Part, split, whole

Advance = Callable[[int], None]


@attrs.frozen(kw_only=True)
class Settings:
    """What to replay, and under which checks.

    `first_seq` and `last_seq` bound the events (None: from the beginning, to the end); `level` is
    the checker's. `collect` applies every event as it is written, whatever the run's policies are.
    `ignore` names invariants that are not checked, `jobs` how many processes work. In the evidence
    of a part that begins with a snapshot, what was FREE there has 0 for its last event.
    """

    first_seq: int | None = None
    last_seq: int | None = None
    level: str = "event"
    collect: bool = False
    ignore: tuple[str, ...] = ()
    jobs: int = 1
    salvage: bool = False

    def __attrs_post_init__(self) -> None:
        """Refuse what no replay can be made with."""
        if self.jobs < 1:
            raise ConfigError(f"--jobs must be at least 1, got {self.jobs}")
        for name, seq in (("--from", self.first_seq), ("--to", self.last_seq)):
            if seq is not None and seq < 0:
                raise ConfigError(f"{name} is a seq, at least 0, got {seq}")


def make_checker(header: RunHeader, settings: Settings) -> tuple[Checker, tuple[str, ...]]:
    """The checker of a replay, and the run's own invariants, which only that run could check.

    The policies are the run's, so that the replay ends where the run did.
    """
    known = Checker().ids
    foreign = tuple(name for name in header.policies if name not in known)
    checker = Checker(
        level=settings.level,
        policy="collect" if settings.collect else "raise",
        policies={}
        if settings.collect
        else {name: policy for name, policy in header.policies.items() if name in known},
        ignore=settings.ignore,
    )
    return checker, foreign


def replay_run(
    run: LogRun,
    settings: Settings,
    advance: Advance = lambda _num: None,
    watch: Watch | None = None,
) -> Outcome:
    """Replay a run; `advance` hears how many events were done since it was called last.

    `watch` looks on, where one process does all the work.

    Raises `ConfigError` for settings that do not fit the run, `LogError` and `EventError` for a log
    that cannot be followed.
    """
    refuse_beyond_memory(run.layout)
    checker, foreign = make_checker(run.header, settings)
    part = whole(run, settings.first_seq, settings.last_seq)
    parts = split(run, part, PARTS_PER_JOB * settings.jobs if settings.jobs > 1 else 1)
    jobs = min(settings.jobs, len(parts))
    if jobs > 1:
        followed = _shared_out(run, settings, parts, jobs, advance)
    else:
        followed = Follower(
            run, part, checker, salvage=settings.salvage, advance=advance, watch=watch
        ).follow()
    notes = [f"{name} is an invariant of the run's own, not checked here" for name in foreign]
    return _outcome(run, settings, followed, checker.names_off(), tuple(notes), jobs)


def _shared_out(
    run: LogRun, settings: Settings, parts: list[Part], jobs: int, advance: Advance
) -> PartOutcome:
    """The outcome of all parts, as one process would have found it.

    A snapshot holds what is in use. What a fault left in rows and pages that are not is lost in
    one, so behind a first violation that does not end the run, one process does the rest.
    """
    sound: list[PartOutcome] = []
    with closing(_in_processes(run, settings, parts, jobs, advance)) as outcomes:
        for part, outcome in zip(parts, outcomes, strict=False):
            if outcome.found and not outcome.ended and not part.last:
                break
            sound.append(outcome)
            if outcome.ended or part.last:
                return join_parts(sound)
    rest = Part(start=part.start, stop=parts[-1].stop, last=True)
    checker, _ = make_checker(run.header, settings)
    follower = Follower(run, rest, checker, salvage=settings.salvage, advance=advance)
    return join_parts([*sound, follower.follow()])


def follow_part(path: str, settings: Settings, part: Part) -> PartOutcome:
    """Replay one part of the run at `path`; what another process is asked to do."""
    run = _opened(path, salvage=settings.salvage)
    checker, _ = make_checker(run.header, settings)
    return Follower(run, part, checker, salvage=settings.salvage).follow()


@lru_cache(maxsize=1)
def _opened(path: str, *, salvage: bool) -> LogRun:
    # Once in each process, whatever the number of parts that it is given.
    return open_run(path, salvage=salvage)


def _in_processes(
    run: LogRun, settings: Settings, parts: list[Part], jobs: int, advance: Advance
) -> Generator[PartOutcome, None, None]:
    """The outcome of each part, in order; parts behind the end of the run are not waited for."""
    with _executor(jobs) as executor:
        futures = {
            executor.submit(follow_part, str(run.path), settings, part): idx
            for idx, part in enumerate(parts)
        }
        done: dict[int, Future[PartOutcome]] = {}
        wanted = 0
        for future in as_completed(futures):
            done[futures[future]] = future
            if future.exception() is None:
                advance(future.result().num_events)
            # In order, an error too: behind the end of the run nothing is asked for.
            while wanted in done:
                yield done.pop(wanted).result()
                wanted += 1


@contextmanager
def _executor(jobs: int) -> Iterator[ProcessPoolExecutor]:
    # Spawned and not forked: the process may have threads (a progress bar, a log being written).
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(jobs, mp_context=context)
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


def _outcome(
    run: LogRun,
    settings: Settings,
    followed: PartOutcome,
    names_off: tuple[str, ...],
    notes: tuple[str, ...],
    jobs: int,
) -> Outcome:
    differences = list(followed.differences)
    recorded = None if run.closed is None else run.closed.digest
    compared = recorded is not None and followed.at_end
    if compared and followed.digest != recorded:
        text = f"the final digest is {followed.digest:016x}, the log says {recorded:016x}"
        differences.append(Difference(kind="digest", seq=followed.next_seq, text=text))
    wrong = any(difference.kind in ("snapshot", "digest") for difference in differences)
    partly = run.closed is None or settings.last_seq is not None
    agreed = compared or (partly and followed.num_snapshots > 0)
    return Outcome(
        path=str(run.path),
        first_seq=followed.first_seq,
        next_seq=followed.next_seq,
        log_next_seq=run.next_seq,
        num_events=followed.num_events,
        found=followed.found,
        num_found=followed.num_found,
        checked=followed.checked,
        names_off=names_off,
        num_snapshots=followed.num_snapshots,
        differences=tuple(differences),
        holes=followed.holes,
        notes=(*run.warnings, *notes, *followed.notes),
        digest=followed.digest,
        digest_ok=False if wrong else (True if agreed else None),
        closed=run.closed is not None,
        live=run.live,
        compared=compared,
        stopped=followed.stopped,
        lost=followed.lost,
        jobs=jobs,
    )
