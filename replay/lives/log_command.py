"""`kvlife log`: the events of a log, one a line, those that are asked for."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Annotated

import attrs
from cyclopts import Parameter

from kvlife.errors import ConfigError, KvLifeError
from kvlife.events import Recorded, Resized
from kvlife.log import LogRun
from kvlife.replay.cli import FINE
from kvlife.replay.history.selecting import Selection, Span, find_group, parse_kinds, refuse_page
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.options import LogPath, Salvage
from kvlife.replay.output.event_json import event_json
from kvlife.replay.output.event_words import HOST, words_of
from kvlife.replay.output.moments import clock
from kvlife.replay.output.opening import open_log
from kvlife.replay.output.quoting import printable
from kvlife.replay.output.run_notes import run_notes


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class LogOptions:
    """The options of `kvlife log`; an event is shown where all of them fit."""

    kind: Annotated[
        tuple[str, ...], Parameter(help="A kind of event, in any case; may stand repeatedly.")
    ] = ()
    request: Annotated[
        str | None, Parameter(help="Events that name this request, or its row while it holds it.")
    ] = None
    page: Annotated[int | None, Parameter(help="Events that name this page.")] = None
    group: Annotated[
        str | None, Parameter(help="The page's cache group; by default the base group.")
    ] = None
    host: Annotated[
        bool, Parameter(negative="", help="The page is one of the host's, where backups lie.")
    ] = False
    row: Annotated[int | None, Parameter(help="Events that name this row.")] = None
    step: Annotated[
        str | None, Parameter(help="Steps A:B (B not included), A:, :B, or one step.")
    ] = None
    time: Annotated[
        str | None, Parameter(help="Times A:B in seconds by the clock of the events, as steps.")
    ] = None
    from_: Annotated[int | None, Parameter(name="--from", help="The first seq.")] = None
    to: Annotated[int | None, Parameter(help="The last seq.")] = None
    limit: Annotated[int | None, Parameter(help="Show so many events at most.")] = None
    salvage: Salvage = False
    json: Annotated[bool, Parameter(negative="", help="Print one JSON object a line.")] = False


def log(
    log: LogPath,
    options: LogOptions | None = None,
) -> int:
    """Show the events of a log, one a line: seq, step, time, kind, and what it says.

    Publishing names a row, and no pages: `kvlife page` has what happened to a page. Exit status:
    0 fine, 2 the log is unusable; what can be read is shown all the same.
    """
    options = LogOptions() if options is None else options
    if options.limit is not None and options.limit < 0:
        raise ConfigError(f"--limit is how many are shown, at least 0, got {options.limit}")
    if options.group is not None and options.page is None:
        raise ConfigError("--group says which page --page means: give both, or neither")
    if options.host and (options.page is None or options.group is not None):
        raise ConfigError("--host says that --page is one of the host's: give both, and no --group")
    run = open_log(log, salvage=options.salvage)
    selected = islice(_selected(run, options), options.limit)
    num_shown = 0
    try:
        for item in selected:
            print(_json_line(run, item) if options.json else _line(run, item))
            num_shown += 1
        if not num_shown and options.limit != 0:
            _refuse_unknown(run, options.request)
            print("note: no event of the log fits what was asked for", file=sys.stderr)
    finally:
        sys.stdout.flush()
        for note in run_notes(run):
            print(f"note: {note}", file=sys.stderr)
    return FINE


def _refuse_unknown(run: LogRun, rid: str | None) -> None:
    """Nothing fits: refuse a request that the log does not have at all."""
    if rid is None:
        return
    named = Selection(request=rid).select(run, run.begins_at, run.next_seq, None)
    if next(iter(named), None) is None and _row_of(run, rid, run.begins_at + 1) is None:
        raise ConfigError(f"no event of {run.path} names the request {rid!r}")


def _selected(run: LogRun, options: LogOptions) -> Iterator[Recorded]:
    selection = Selection(
        kinds=parse_kinds(options.kind),
        page=_page(run, options),
        row=_row(run, options.row),
        request=options.request,
        steps=Span.parse("--step", options.step, whole=True),
        seconds=Span.parse("--time", options.time),
    )
    start = _start(run, options.from_)
    stop = run.next_seq if options.to is None else min(options.to + 1, run.next_seq)
    if options.to is not None and options.to < start:
        raise ConfigError(f"--to {options.to} lies before the first event asked for, {start}")
    row = None if options.request is None else _row_of(run, options.request, start)
    return selection.select(run, start, stop, row)


def _page(run: LogRun, options: LogOptions) -> tuple[int | None, int] | None:
    if options.page is None:
        return None
    if options.host:
        # A log of pools without a host space may name host pages by any number.
        refuse_page(options.page, HOST, run.layout.host_pages or 1 << 31, "in this log")
        return None, options.page
    idx = find_group(run.layout, options.group).space_idx
    space = run.layout.spaces[idx]
    if not 0 < options.page < space.num_pages:
        refuse_page(options.page, space.name, _most_pages(run, idx), "at most")
    return idx, options.page


def _most_pages(run: LogRun, space_idx: int) -> int:
    """How large a page space ever was, as far as the log tells."""
    most = run.layout.spaces[space_idx].num_pages
    with suppress(KvLifeError):  # without a state to begin with there still are events
        first = Timeline(run)
        most = max(most, first.state(first.first_seq).spaces[space_idx].num_pages)
    for item in run.events():
        if isinstance(item.event, Resized) and item.event.space == space_idx:
            most = max(most, item.event.num_pages)
    return most


def _row(run: LogRun, row: int | None) -> int | None:
    if row is not None and not 0 < row < run.layout.num_rows:
        raise ConfigError(f"--row {row}: the log's rows are [1, {run.layout.num_rows})")
    return row


def _start(run: LogRun, wanted: int | None) -> int:
    if wanted is None:
        return min([stretch.first_seq for stretch in islice(run.stretches(), 1)] or [run.begins_at])
    if not 0 <= wanted < max(run.next_seq, 1):
        raise ConfigError(f"--from {wanted}: the log's events are [0, {run.next_seq})")
    return wanted


def _row_of(run: LogRun, rid: str, start: int) -> int | None:
    """The row that a request holds at `start`; None where it holds none, or it is not known."""
    if start <= run.begins_at:
        return None
    try:
        return Timeline(run).state(start).requests.get(rid)
    except KvLifeError as error:
        print(
            f"note: which row {rid!r} holds at seq {start} is not known: {error}", file=sys.stderr
        )
        return None


def _line(run: LogRun, item: Recorded) -> str:
    words = words_of(item.event, run.layout)
    return f"{item.seq:>10}  {item.step:>8}  {clock(item.time_ns):>15}  {printable(words)}"


def _json_line(run: LogRun, item: Recorded) -> str:
    return json_format.dumps(event_json(item, run.layout))
