"""`kvlife report`: one HTML file that shows a run, and explains its first violation."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from time import perf_counter
from typing import Annotated

from cyclopts import Parameter

from kvlife.replay.cli import FINE, FOUND
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.options import AsJson, Check, LogPath, Salvage
from kvlife.replay.output.columns import print_lines
from kvlife.replay.output.opening import open_log
from kvlife.replay.output.output_file import new_file, refuse_output
from kvlife.replay.output.progress import progress_bar
from kvlife.replay.replaying.outcome import Outcome
from kvlife.replay.replaying.parts import whole
from kvlife.replay.replaying.session import Settings, replay_run
from kvlife.replay.report_page import Watcher, axis_of, page_of


def report(
    log: LogPath,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"], help="The HTML file to write.")],
    axis: Annotated[
        str | None,
        Parameter(help="What runs from left to right: time (the default, if it went on), events."),
    ] = None,
    check: Check = "event",
    salvage: Salvage = False,
    json: AsJson = False,
) -> int:
    """Show a run in one HTML file: pages, requests, evictions, who held what, what went wrong.

    The log is replayed once, and checked on the way, as far as the run itself went: where it went
    on behind what the checks now find, so does the report. Exit status: 0 fine, 1 a violation or a
    difference was found (the file is written), 2 the log is unusable.
    """
    refuse_output(output, "HTML file", source=log)
    begun = perf_counter()
    run = open_log(log, salvage=salvage)
    went_on = Timeline(run).violated is None
    settings = Settings(level=check, collect=went_on, salvage=salvage)
    watcher = Watcher(axis_of(run, whole(run, None, None).start, axis), run.layout)
    with progress_bar("replaying", run.next_seq - run.begins_at, quiet=json) as bar:
        outcome = replay_run(run, settings, bar.advance, watcher)
    content = page_of(run, watcher, outcome).encode("utf-8", "replace")
    with new_file(output) as file:
        file.write(content)
    summary = _summary(outcome, output, len(content), perf_counter() - begun)
    if json:
        print(json_format.dumps(summary))
    else:
        left = (outcome.unclosed, *outcome.notes)
        notes = [("yellow", f"note: {note}") for note in left if note]
        print_lines([("", _line(summary)), *notes])
    return FOUND if outcome.found or outcome.differences else FINE


def _summary(outcome: Outcome, output: Path, num_bytes: int, seconds: float) -> dict[str, object]:
    first = outcome.first
    return {
        "log": outcome.path,
        "report": str(output),
        "report_bytes": num_bytes,
        "events": outcome.num_events,
        "violations": sum(outcome.num_found.values()),
        "first": None if first is None else {"id": first.id, "seq": first.seq},
        "differences": len(outcome.differences),
        "checked": outcome.checked.events,
        "seconds": round(seconds, 3),
    }


def _line(summary: dict[str, object]) -> str:
    first = summary["first"]
    found = "no violation found" if summary["checked"] else "NOTHING was checked"
    if isinstance(first, dict):
        found = f"first violation: {first['id']} at seq {first['seq']}"
    elif summary["differences"]:
        found = "the replay differs from the log"
    return (
        f"{summary['report']}: {summary['events']:,} events of {summary['log']}, {found}"
        f" ({summary['report_bytes']:,} bytes, {summary['seconds']} s)"
    )
