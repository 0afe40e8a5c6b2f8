"""`kvlife replay`: run a log again under the checker, and compare its state with the log's."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from kvlife.log import open_run
from kvlife.replay.chain import explain
from kvlife.replay.outcome import Outcome
from kvlife.replay.report import as_json, print_report
from kvlife.replay.session import Advance, Settings, replay_run

_FINE, _FOUND = 0, 1


def replay(
    log: Annotated[Path, Parameter(help="A run, or the folder of its runs (then the newest).")],
    *,
    from_: Annotated[
        int | None,
        Parameter(name="--from", help="Start from the newest snapshot at or before this seq."),
    ] = None,
    to: Annotated[int | None, Parameter(help="The last seq to replay.")] = None,
    collect: Annotated[
        bool,
        Parameter(negative="", help="Apply every event as written and go on behind a violation."),
    ] = False,
    ignore: Annotated[
        tuple[str, ...], Parameter(help="An invariant that is not checked; may stand repeatedly.")
    ] = (),
    check: Annotated[str, Parameter(help="What is checked: event, step, sample or off.")] = "event",
    jobs: Annotated[int, Parameter(help="Processes that share the log between snapshots.")] = 1,
    salvage: Annotated[
        bool,
        Parameter(negative="", help="Leave out what is damaged, up to the next snapshot."),
    ] = False,
    json: Annotated[bool, Parameter(negative="", help="Print one JSON object.")] = False,
) -> int:
    """Run a log again under the checker, and compare its state with the recorded one.

    Exit status: 0 fine, 1 a violation or a difference was found, 2 the log is unusable.
    """
    settings = Settings(
        first_seq=from_,
        last_seq=to,
        level=check,
        collect=collect,
        ignore=ignore,
        jobs=jobs,
        salvage=salvage,
    )
    begun = perf_counter()
    run = open_run(log, salvage=salvage)
    with _progress(run.next_seq - run.begins_at, quiet=json) as advance:
        outcome = replay_run(run, settings, advance)
    seconds = perf_counter() - begun
    chain = None if outcome.first is None else explain(run, outcome.first)
    if json:
        print(json_format.dumps(as_json(outcome, chain, seconds), default=str))
    else:
        print_report(Console(highlight=False), outcome, chain, seconds)
    return _status(outcome)


def _status(outcome: Outcome) -> int:
    return _FOUND if outcome.found or outcome.differences else _FINE


@contextmanager
def _progress(num_events: int, *, quiet: bool) -> Iterator[Advance]:
    """A bar on stderr, where that is a terminal."""
    console = Console(file=sys.stderr)
    if quiet or not console.is_terminal:
        yield lambda _num: None
        return
    columns = (TextColumn("replaying"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=num_events)
        yield lambda num: progress.advance(task, num)
