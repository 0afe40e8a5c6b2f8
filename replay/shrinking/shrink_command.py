"""`kvlife shrink`: the smallest log that still breaks the same invariant first."""

from __future__ import annotations

import json as json_format
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import Annotated

from cyclopts import Parameter

from kvlife.errors import ConfigError, InvariantViolation
from kvlife.replay.cli import FINE, INTERRUPTED
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.options import AsJson, LogPath
from kvlife.replay.output.columns import print_lines
from kvlife.replay.output.opening import open_log
from kvlife.replay.output.output_file import new_file, refuse_log, refuse_new_file
from kvlife.replay.output.progress import Bar, progress_bar
from kvlife.replay.shrinking import (
    Culprit,
    Program,
    Report,
    Shrinker,
    as_test,
    first_culprit,
    recorded_culprit,
    slice_run,
    write_small,
)


def shrink(
    log: LogPath,
    *,
    output: Annotated[
        Path, Parameter(name=["--output", "-o"], help="The folder for the small log, a new one.")
    ],
    pytest: Annotated[
        Path | None, Parameter(help="Write a test file that rebuilds the small log.")
    ] = None,
    invariant: Annotated[
        str | None,
        Parameter(help="The invariant to go by (default: the one that breaks first)."),
    ] = None,
    same_story: Annotated[
        bool, Parameter(negative="", help="Keep the reason, and what touched last what is named.")
    ] = False,
    seconds: Annotated[
        float | None, Parameter(help="Stop after so long, with the smallest log found so far.")
    ] = None,
    json: AsJson = False,
) -> int:
    """Find the smallest log that still breaks the same invariant first.

    Requests, steps, events, tokens and pages are taken away one after another. What goes is taken
    out of every later event that names it, and lengths are derived again. An interrupt writes the
    smallest log found so far.

    Exit status: 0 a smaller log was written, 2 the log is unusable or no event in it breaks
    anything, 130 interrupted.
    """
    refuse_log(output, new=True)
    if pytest is not None:
        refuse_new_file(pytest, "test", option="--pytest")
        if pytest.resolve() == output.resolve():
            raise ConfigError(f"--pytest {pytest}: is the folder for the small log: name a file")
    if seconds is not None and not seconds > 0:
        raise ConfigError(f"--seconds must be above 0, got {seconds}")
    begun = perf_counter()
    is_over = _deadline(seconds)
    timeline = Timeline(open_log(log))
    with progress_bar("reading", timeline.last_seq - timeline.first_seq, quiet=json) as bar:
        culprit, program = _sliced(timeline, invariant, bar)
    with progress_bar("shrinking", len(program.pieces) + 1, quiet=json) as bar:
        watch = partial(_watch, bar)
        shrinker = Shrinker(program, same_story=same_story, is_over=is_over, watch=watch)
        shrinker.run()
    report = Report(
        run=timeline.run,
        culprit=culprit,
        shrinker=shrinker,
        violation=_written(shrinker, culprit, output, pytest),
        written=(output, pytest),
        seconds=perf_counter() - begun,
    )
    _show(report, json=json)
    return INTERRUPTED if shrinker.interrupted else FINE


def _written(
    shrinker: Shrinker, culprit: Culprit, output: Path, test: Path | None
) -> InvariantViolation:
    violation = write_small(shrinker, output, culprit.item.time_ns)
    if test is not None:
        trial = shrinker.trial
        text = as_test(shrinker.best.config, trial.events, trial.last, violation)
        with new_file(test, option="--pytest") as file:
            file.write(text.encode())
    return violation


def _show(report: Report, *, json: bool) -> None:
    if json:
        print(json_format.dumps(report.as_json()))
    else:
        print_lines(report.lines())


def _watch(bar: Bar, first: int, now: int) -> None:
    bar.reach(first - now)


def _deadline(seconds: float | None) -> Callable[[], bool]:
    """Whether the time is up."""
    if seconds is None:
        return lambda: False
    ends = monotonic() + seconds
    return lambda: monotonic() >= ends


def _sliced(timeline: Timeline, invariant: str | None, bar: Bar) -> tuple[Culprit, Program]:
    """The event to blame, and the events that it depends on."""
    culprit = recorded_culprit(timeline, invariant)
    if culprit is not None:
        program = slice_run(timeline, culprit, bar.advance)
        if program is not None:
            return culprit, program
    bar.reach(0)
    culprit = first_culprit(timeline, invariant, bar.advance)
    bar.reach(0)
    program = slice_run(timeline, culprit, bar.advance)
    assert program is not None  # the checker has found it in this very state
    return culprit, program
