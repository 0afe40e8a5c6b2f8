"""Which run a path means: the run itself, a pack, or the newest of a folder of runs."""

from __future__ import annotations

from pathlib import Path

import attrs

from kvlife.errors import LogError
from kvlife.log.files import HEADER_NAME, is_run_name, list_runs
from kvlife.log.packed import is_pack

_NEVER_BEGAN = "the engine was killed while it started, or the file is lost"


@attrs.frozen(kw_only=True)
class LocatedRun:
    """A run that can be opened; newer ones of its folder were left out, as they have no header."""

    path: Path
    left_out: tuple[Path, ...] = ()


def locate_run(path: Path) -> LocatedRun:
    """The run that a path means; raises `LogError` where there is none with a header."""
    if (path / HEADER_NAME).exists() or is_pack(path):
        return LocatedRun(path=path)
    if not path.is_dir():
        what = "is a file, and no pack" if path.exists() else "there is no such folder"
        raise LogError(f"{path}: {what}: name a run's folder, the folder of the runs, or a pack")
    found = list_runs(path)
    begun = [run for run in found if (run / HEADER_NAME).exists()]
    if begun:
        newer = found[found.index(begun[-1]) + 1 :]
        return LocatedRun(path=begun[-1], left_out=tuple(newer))
    if found:
        raise LogError(f"{path}: none of its runs has a {HEADER_NAME}: {_NEVER_BEGAN}")
    if is_run_name(path.absolute().name):
        raise LogError(f"{path}: no {HEADER_NAME} in it: {_NEVER_BEGAN}")
    raise LogError(f"{path}: no run in it: name a run, or the folder of its runs")
