"""`kvlife export`: a log for other programs."""

from __future__ import annotations

import json as json_format
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Annotated, BinaryIO

from cyclopts import Parameter

from kvlife.errors import ConfigError
from kvlife.log import LogRun
from kvlife.replay.cli import FINE
from kvlife.replay.exporting import Following, write_jsonl
from kvlife.replay.exporting.chrome import ChromeSink
from kvlife.replay.exporting.story import Story
from kvlife.replay.exporting.tracks import Sink
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.options import AsJson, LogPath, Salvage
from kvlife.replay.output.columns import print_lines
from kvlife.replay.output.opening import open_log
from kvlife.replay.output.output_file import (
    new_file,
    new_folder,
    refuse_output,
    refuse_output_folder,
)
from kvlife.replay.output.progress import Bar, progress_bar
from kvlife.replay.output.run_notes import run_notes
from kvlife.replay.report_page.axis import axis_of

TARGETS = ("perfetto", "chrome", "parquet", "jsonl")
# What a target needs that kvlife itself does not: the module, and the extra that brings it.
_EXTRAS = {"perfetto": ("perfetto", "perfetto"), "parquet": ("pyarrow", "arrow")}


def export(
    log: LogPath,
    *,
    to: Annotated[str, Parameter(help="What to write: perfetto, chrome, parquet or jsonl.")],
    output: Annotated[
        Path, Parameter(name=["--output", "-o"], help="The file, or with parquet the new folder.")
    ],
    from_: Annotated[int | None, Parameter(name="--from", help="The first seq.")] = None,
    until: Annotated[int | None, Parameter(help="The last seq.")] = None,
    axis: Annotated[
        str | None,
        Parameter(help="For timelines: time (the default, if it went on), or events."),
    ] = None,
    salvage: Salvage = False,
    json: AsJson = False,
) -> int:
    """Write a log as a timeline, as tables, or as text.

    perfetto, chrome: a timeline with a track for each pool, request, session and pin, counters, and
    flows from the first pages of a holder to their release; open it at ui.perfetto.dev. parquet:
    the tables events, requests and page_lives for DuckDB or pandas. jsonl: a header line, then
    every event with every field. Exit status: 0 fine, 2 the log or the arguments are unusable.
    """
    _refuse_target(to)
    if to == "parquet":
        refuse_output_folder(output)
    else:
        refuse_output(output, "file", source=log)
    begun = perf_counter()
    run = open_log(log, salvage=salvage)
    start, stop = _span(run, from_, until, replayed=to != "jsonl")
    told: dict[str, object] = {"log": str(run.path), "to": to, "output": str(output)}
    with progress_bar("exporting", max(stop - start, 1), quiet=json) as bar:
        if to == "parquet":
            told |= _write_tables(run, output, start, stop, bar)
        else:
            with new_file(output) as file:
                if to == "jsonl":
                    told["events"] = write_jsonl(run, file, start, stop, bar.advance)
                else:
                    told["events"] = _write_timeline(run, _sink(to, file), start, stop, axis, bar)
                told["bytes"] = file.tell()
    told["seconds"] = round(perf_counter() - begun, 3)
    _tell(told, [*run_notes(run)], json=json)
    return FINE


def _refuse_target(to: str) -> None:
    if to not in TARGETS:
        raise ConfigError(f"no such target: {to!r}; there are {', '.join(TARGETS)}")
    module, extra = _EXTRAS.get(to, ("json", ""))
    if find_spec(module) is None:
        raise ConfigError(
            f"--to {to} needs {module}, which is not installed: pip install 'kvlife[{extra}]'"
        )


def _span(run: LogRun, first: int | None, last: int | None, *, replayed: bool) -> tuple[int, int]:
    """Raises `ConfigError` for seqs that the log does not have."""
    begins = run.begins_at
    if not replayed:
        stretch = next(run.stretches(), None)
        begins = begins if stretch is None else stretch.first_seq
    start = begins if first is None else first
    if first is not None and not begins <= first < max(run.next_seq, begins + 1):
        raise ConfigError(f"--from {first}: the log's events are [{begins}, {run.next_seq})")
    stop = run.next_seq if last is None else min(last + 1, run.next_seq)
    if last is not None and last < start:
        raise ConfigError(f"--until {last} lies before the first event asked for, {start}")
    return start, max(stop, start)


def _sink(to: str, file: BinaryIO) -> Sink:
    if to == "chrome":
        return ChromeSink(file)
    # An extra that may not be installed.
    from kvlife.replay.exporting.perfetto import PerfettoSink

    return PerfettoSink(file)


def _write_timeline(
    run: LogRun, sink: Sink, start: int, stop: int, axis: str | None, bar: Bar
) -> int:
    by_seq = axis_of(run, start, axis).kind == "events"
    story = Story(sink, run.layout, stop - start, by_seq=by_seq)
    num = Following(Timeline(run), story).go(start, stop, bar.advance)
    story.finish()
    return num


def _write_tables(run: LogRun, output: Path, start: int, stop: int, bar: Bar) -> dict[str, object]:
    # An extra that may not be installed.
    from kvlife.replay.exporting.tables import Tables

    with new_folder(output) as folder:
        tables = Tables(folder, run.layout)
        num = Following(Timeline(run), tables).go(start, stop, bar.advance)
        tables.finish()
        num_bytes = sum(path.stat().st_size for path in folder.iterdir())
    return {"events": num, "rows": tables.num_rows, "bytes": num_bytes}


def _tell(told: dict[str, object], notes: list[str], *, json: bool) -> None:
    if json:
        print(json_format.dumps(told | {"notes": notes}))
        return
    what = (
        f"{told['output']}: {told['events']:,} events of {told['log']} as {told['to']}"
        f" ({told['bytes']:,} bytes, {told['seconds']} s)"
    )
    print_lines([("", what), *(("yellow", f"note: {note}") for note in notes)])
