"""`kvlife replay`: run a log again under the checker, and compare its state with the log's."""

from __future__ import annotations

import json as json_format
from time import perf_counter
from typing import Annotated

from cyclopts import Parameter

from kvlife.replay.cli import FINE, FOUND
from kvlife.replay.history.chain import explain
from kvlife.replay.history.next_commands import next_commands
from kvlife.replay.options import AsJson, Check, LogPath, Salvage
from kvlife.replay.output.columns import print_lines
from kvlife.replay.output.opening import open_log
from kvlife.replay.output.progress import progress_bar
from kvlife.replay.replaying.outcome import Outcome
from kvlife.replay.replaying.report import as_json, report_lines
from kvlife.replay.replaying.session import Settings, replay_run


def replay(
    log: LogPath,
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
    check: Check = "event",
    jobs: Annotated[int, Parameter(help="Processes that share the log between snapshots.")] = 1,
    salvage: Salvage = False,
    json: AsJson = False,
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
    run = open_log(log, salvage=salvage)
    with progress_bar("replaying", run.next_seq - run.begins_at, quiet=json) as bar:
        outcome = replay_run(run, settings, bar.advance)
    seconds = perf_counter() - begun
    chain = None if outcome.first is None else explain(run, outcome.first)
    commands = () if outcome.first is None else next_commands(run, outcome.first)
    if json:
        print(json_format.dumps(as_json(outcome, chain, commands, seconds), default=str))
    else:
        print_lines(report_lines(outcome, chain, commands, seconds))
    return _status(outcome)


def _status(outcome: Outcome) -> int:
    return FOUND if outcome.found or outcome.differences else FINE
