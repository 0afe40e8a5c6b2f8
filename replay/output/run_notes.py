"""What a reader should know of a log, whatever it is asked for."""

from __future__ import annotations

from collections.abc import Iterator

from kvlife.log import LogRun


def run_notes(run: LogRun) -> Iterator[str]:
    """That it is being written, what is missing in it, and what was left out so far, and why."""
    if run.live:
        yield f"another process is writing this run: seen up to seq {run.next_seq - 1}"
    for gap in run.gaps:
        yield f"events [{gap.first_seq}, {gap.next_seq}) are not in the log: the disk was full"
    for hole in dict.fromkeys(run.skipped):
        end = "on" if hole.next_seq is None else f"to {hole.next_seq - 1}"
        yield f"salvage left out events from seq {hole.first_seq} {end}: {hole.reason}"
    yield from run.warnings
