"""A progress bar on stderr for long work, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)


@attrs.frozen
class Bar:
    """What is told how far the work has come; it shows nothing where there is no display."""

    _display: Progress | None = None
    _task: TaskID | None = None

    def advance(self, num: int) -> None:
        """So many more are done."""
        if self._display is not None and self._task is not None:
            self._display.advance(self._task, num)

    def reach(self, num_done: int) -> None:
        """So many are done in all."""
        if self._display is not None and self._task is not None:
            self._display.update(self._task, completed=num_done)


@contextmanager
def progress_bar(what: str, total: int, *, quiet: bool) -> Iterator[Bar]:
    """A bar over `total` pieces of work, gone at the end; a silent one under `quiet`."""
    console = Console(file=sys.stderr)
    if quiet or not console.is_terminal:
        yield Bar()
        return
    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as display:
        yield Bar(display, display.add_task("", total=total))
