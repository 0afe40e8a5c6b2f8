"""`kvlife top`: a live view, in the terminal, of runs that are being written."""

from __future__ import annotations

import json as json_format
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Annotated

import attrs
from cyclopts import Parameter
from rich.console import Console
from rich.live import Live

from kvlife.errors import ConfigError, KvLifeError, LogError
from kvlife.log import runs
from kvlife.log.claim import is_live
from kvlife.log.files import HEADER_NAME
from kvlife.log.locate import locate_run
from kvlife.log.packed import is_pack
from kvlife.replay.cli import FINE, FOUND, UNUSABLE
from kvlife.replay.output.opening import locate_log
from kvlife.replay.watching.top_frame import frame
from kvlife.replay.watching.top_run import Sight, WatchedRun

# Runs that are shown at most: those that are live, and the newest.
MAX_SHOWN = 4
# Among so many of the newest.
MAX_LOOKED_AT = 32
LEVELS = ("event", "sample", "off")
_FOREVER = float("inf")


def top(
    log: Annotated[Path, Parameter(help="A run, or a folder of runs: the newest, and live ones.")],
    *,
    every: Annotated[float, Parameter(help="Seconds between two looks.")] = 1.0,
    check: Annotated[str, Parameter(help="What is checked: event, sample or off.")] = "event",
    once: Annotated[bool, Parameter(negative="", help="Look once, and end.")] = False,
    json: Annotated[bool, Parameter(negative="", help="Print one JSON object a look.")] = False,
) -> int:
    """Watch runs while they are written: pages, rows, rates, hit rate, violations.

    A run is taken up at its newest snapshot and followed from there; nothing is written to it. `q`
    or Ctrl-C ends. Where the output is no terminal, there is one look. Exit status: 0 fine, 1 a
    violation was found, 2 there is no run to look at, or one that cannot be followed to its end.
    """
    if not 0.05 <= every <= 3600:
        raise ConfigError(f"--every is in seconds, from 0.05 to 3600, got {every}")
    if check not in LEVELS:
        raise ConfigError(f"no such level: {check!r}; there are {', '.join(LEVELS)}")
    console = Console(highlight=False)
    view = TopView(log, check)
    if once or not (console.is_terminal or json):
        locate_log(log)
        sights = view.look(_FOREVER)
        _show_once(console, sights, json=json)
    elif json:
        sights = _watch(view, every, lambda sights: print(_as_json(sights), flush=True))
    else:
        sights = _show_live(console, view, every)
    if any(sight.violations or sight.last_violation for sight in sights):
        return FOUND
    return UNUSABLE if any(sight.trouble for sight in sights) else FINE


class TopView:
    """The runs at a path, each followed on from where it was left."""

    def __init__(self, path: Path, level: str, clock: Callable[[], float] = monotonic) -> None:
        """Raises `LogError` where there is neither a run nor a folder."""
        self._is_pack = is_pack(path)
        if not path.is_dir() and not self._is_pack:
            what = "is a file, and no pack" if path.exists() else "there is no such folder"
            raise LogError(f"{path}: {what}: name a run's folder, or the folder of the runs")
        self.path = path
        self._level = level
        self._clock = clock
        self._watched: dict[Path, WatchedRun] = {}

    def look(self, seconds: float) -> list[Sight]:
        """Read on for about so long at most, and say what there is to see, the newest run first.

        Raises `LogError` where there is no run yet and nothing is waited for.
        """
        until = self._clock() + seconds
        paths = self._paths()
        shown = [run for path in paths if (run := self._run(path)) is not None]
        self._watched = {path: run for path, run in self._watched.items() if path in paths}
        if not shown and seconds == _FOREVER:
            # Says why, where there is none.
            located = locate_run(self.path)
            raise LogError(f"{located.path}: it is only being made: look again")
        for run in shown:
            run.read_on(until, self._clock)
        return [run.sight() for run in shown]

    def _paths(self) -> list[Path]:
        if self._is_pack or (self.path / HEADER_NAME).exists():
            return [self.path]
        found = [path for path in reversed(runs(self.path)) if (path / HEADER_NAME).exists()]
        newest = found[:1]
        return [
            path
            for path in found[:MAX_LOOKED_AT]
            if path in newest or path in self._watched or is_live(path)
        ][:MAX_SHOWN]

    def _run(self, path: Path) -> WatchedRun | None:
        """The run at a path; None where it is only being made. A lone run must be readable."""
        if path not in self._watched:
            try:
                self._watched[path] = WatchedRun(path, self._level)
            except KvLifeError:
                if path == self.path or not is_live(path):
                    raise
                return None
        return self._watched[path]


def _show_once(console: Console, sights: list[Sight], *, json: bool) -> None:
    if json:
        print(_as_json(sights))
    else:
        console.print(frame(sights), soft_wrap=True)


def _as_json(sights: list[Sight]) -> str:
    return json_format.dumps({"runs": [attrs.asdict(sight) for sight in sights]})


def _watch(view: TopView, every: float, show: Callable[[list[Sight]], None]) -> list[Sight]:
    """Look and show until somebody ends it; returns what was seen last."""
    sights: list[Sight] = []
    with _keys() as pressed, suppress(KeyboardInterrupt):
        while True:
            sights = view.look(every)
            show(sights)
            if pressed(every) == "q":
                break
    return sights


def _show_live(console: Console, view: TopView, every: float) -> list[Sight]:
    waiting_for = f"waiting for a run in {view.path}  (q ends)"
    with Live(console=console, auto_refresh=False, screen=True) as live:
        sights = _watch(
            view, every, lambda sights: live.update(frame(sights, waiting_for), refresh=True)
        )
    # What was seen last stays when the view is gone.
    console.print(frame(sights), soft_wrap=True)
    return sights


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that waits so many seconds for a key, and returns it or nothing."""
    if not sys.stdin.isatty():
        yield _pause
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield _key
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _key(seconds: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return sys.stdin.read(1) if ready else ""


def _pause(seconds: float) -> str:
    select.select([], [], [], seconds)
    return ""
