"""Opening the log that a command was given."""

from __future__ import annotations

from pathlib import Path

from kvlife.log import LogRun, open_run
from kvlife.log.locate import locate_run
from kvlife.replay.output.aside import say_aside


def open_log(log: Path, *, salvage: bool = False) -> LogRun:
    """As `open_run`; runs that are left out are named on stderr."""
    return open_run(locate_log(log), salvage=salvage)


def locate_log(log: Path) -> Path:
    """The run, or pack, that a path means; runs that are left out are named on stderr."""
    located = locate_run(log)
    for path in located.left_out:
        say_aside(
            f"{path} has no header.json (its engine was killed while it started, or is starting)"
            f" and was left out: this is {located.path}"
        )
    return located.path
