"""`kvlife pack`: one sealed file of a run, to send to a colleague."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import attrs
from cyclopts import Parameter

from kvlife.errors import ConfigError, LogError
from kvlife.log import LogRun, open_run
from kvlife.log.packed import PackMember, PackNote, write_pack
from kvlife.log.packing import members_of_folder, members_of_run
from kvlife.replay.cli import FINE
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.options import AsJson, LogPath
from kvlife.replay.output.columns import print_lines
from kvlife.replay.output.opening import open_log
from kvlife.replay.output.output_file import new_file, refuse_output
from kvlife.replay.output.progress import progress_bar
from kvlife.replay.output.run_notes import run_notes
from kvlife.replay.packing.redacting import redacted
from kvlife.replay.replaying.known import known_states

# How often a run is begun anew whose writer removes what is being packed, and once more.
_TRIES = 5
_ANEW = "the run's writer removed what was being packed, and so it was begun anew ({} of {})"


@attrs.frozen(kw_only=True)
class Span:
    """What of a run is packed: from the state at `start`, up to `stop` or the end (None)."""

    around: int
    start: int
    stop: int | None
    notes: tuple[str, ...]


def pack(
    log: LogPath,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"], help="The file to write.")],
    around: Annotated[
        int | None,
        Parameter(help="The event that it is about (default: the violation, or the last one)."),
    ] = None,
    to: Annotated[int | None, Parameter(help="The last seq (default: the log's).")] = None,
    redact: Annotated[
        bool,
        Parameter(
            negative="", help="Put aliases for ids, holders, namespaces, page keys and notes."
        ),
    ] = False,
    salvage: Annotated[
        bool,
        Parameter(negative="", help="Pack a damaged log too; with --redact, without the damage."),
    ] = False,
    json: AsJson = False,
) -> int:
    """Pack a run into one sealed file that every command reads, from the snapshot before an event.

    Without --redact the log's files are packed as they are, in whole segments: what is damaged
    stays so. With it the events and states are written again under aliases; within a pack, the
    same name has the same alias. `--around 0` packs a log from its beginning. Exit status: 0 fine,
    2 the log is unusable.
    """
    refuse_output(output, "pack", source=log)
    run = open_log(log, salvage=salvage)
    for tries in range(_TRIES):
        span = _span(run, around, to)
        try:
            packed, num_bytes = _write(run, span, output, redact=redact, quiet=json)
            break
        except (LogError, FileNotFoundError) as error:
            now = open_run(run.path, salvage=salvage)
            if not _has_lost(run, now):
                raise
            if tries + 1 == _TRIES:
                raise LogError(
                    f"{run.path}: its writer removed what was being packed, {_TRIES} times:"
                    " pack its end, without --around, or let it keep more"
                ) from error
            run = now
    notes = [*([_ANEW.format(tries, _TRIES - 1)] if tries else []), *span.notes, *run_notes(run)]
    _tell(output, run, packed, span, num_bytes, notes, json=json)
    return FINE


def _write(
    run: LogRun, span: Span, output: Path, *, redact: bool, quiet: bool
) -> tuple[LogRun, int]:
    """The pack, opened, and its bytes."""
    note = PackNote(around=span.around, stop=span.stop, redacted=redact or _is_redacted(run))
    with new_file(output) as file:
        with _members(run, span, redact=redact, quiet=quiet) as members:
            num_bytes = write_pack(file, note, members)
        file.flush()
        # What cannot be opened here cannot be opened there.
        return open_run(file.name, salvage=run.salvage), num_bytes


def _has_lost(run: LogRun, now: LogRun) -> bool:
    """Whether files that a run had have been removed since then, by the retention of its writer."""
    return now.begins_at > run.begins_at or not set(run.snapshots) <= set(now.snapshots)


def _is_redacted(run: LogRun) -> bool:
    return run.pack is not None and run.pack.redacted


@contextmanager
def _members(
    run: LogRun, span: Span, *, redact: bool, quiet: bool
) -> Iterator[Iterator[PackMember]]:
    if not redact:
        yield members_of_run(run, span.start, span.stop)
        return
    stop = run.next_seq if span.stop is None else span.stop
    with (
        progress_bar("redacting", stop - span.start, quiet=quiet) as bar,
        redacted(run, span.start, span.stop, bar.advance) as folder,
    ):
        yield members_of_folder(folder)


def _span(run: LogRun, around: int | None, to: int | None) -> Span:
    """Raises `ConfigError` for seqs that the log does not have."""
    last = max(run.next_seq - 1, 0)
    if around is None:
        around = _event_of_interest(run, last)
    elif not 0 <= around <= last:
        raise ConfigError(f"--around {around}: the log's events are [0, {run.next_seq})")
    if to is not None and to < around:
        raise ConfigError(f"--to {to} lies before the event it is about, seq {around}")
    stop = None if to is None or to >= last else to + 1
    if run.live and stop is None:
        stop = run.next_seq
    start, notes = _start(run, around)
    return Span(around=around, start=start, stop=stop, notes=tuple(notes))


def _event_of_interest(run: LogRun, last: int) -> int:
    try:
        violated = Timeline(run).violated
    except LogError:
        return last
    return last if violated is None else violated.seq


def _start(run: LogRun, around: int) -> tuple[int, list[str]]:
    """The newest state at or before an event that can be read, and what could not."""
    notes: list[str] = []
    known = known_states(run)
    for seq in reversed([seq for seq in known if seq <= around]):
        if seq == 0:
            return 0, notes
        try:
            run.snapshot(seq)
            return seq, notes
        except LogError as error:
            notes.append(f"{error}: an earlier state is packed")
    if known and not notes:
        raise ConfigError(f"--around {around} is gone: the log's states begin at seq {known[0]}")
    first = next(run.stretches(), None)
    notes.append("no state to start from: its events can be shown, not replayed")
    return run.begins_at if first is None else first.first_seq, notes


def _tell(
    output: Path,
    run: LogRun,
    packed: LogRun,
    span: Span,
    num_bytes: int,
    notes: list[str],
    *,
    json: bool,
) -> None:
    told = {
        "log": str(run.path),
        "pack": str(output),
        "bytes": num_bytes,
        "around": span.around,
        "first_seq": packed.begins_at,
        "next_seq": packed.next_seq,
        "redacted": packed.pack is not None and packed.pack.redacted,
        "notes": notes,
    }
    if json:
        print(json_format.dumps(told))
        return
    how = "under aliases" if told["redacted"] else "as it is"
    what = (
        f"{output}: seqs [{packed.begins_at:,}, {packed.next_seq:,}) of {run.path}, {how}"
        f" ({num_bytes:,} bytes)"
    )
    print_lines([("", what), *(("yellow", f"note: {note}") for note in notes)])
