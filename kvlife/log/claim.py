"""Taking a new run directory for one writer, and keeping forked children out of it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from kvlife.errors import LogError
from kvlife.log.files import HEADER_NAME, TEMPORARY, list_runs, run_path
from kvlife.log.segment import log_full


def claim_run(root: Path) -> tuple[Path, int]:
    """Make and lock the next run directory; making a directory succeeds for one writer only."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        runs = list_runs(root)
        number = int(runs[-1].name.removeprefix("run-")) + 1 if runs else 1
        while True:
            run = run_path(root, number)
            try:
                run.mkdir()
                break
            except FileExistsError:
                number += 1
        lock = os.open(run, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise LogError(
            f"{root}: no run can be made here ({error.strerror}): name a folder that is writable"
        ) from error
    # A reader that looks whether the run is live holds the lock for an instant at most.
    fcntl.flock(lock, fcntl.LOCK_EX)
    return run, lock


def is_live(run: Path) -> bool:
    """Whether a writer holds the run."""
    try:
        fd = os.open(run, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise LogError(f"{run}: cannot be opened ({error.strerror})") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def write_header(run: Path, content: bytes) -> None:
    """Write the run's header, whole or not at all."""
    path = run / HEADER_NAME
    beside = run / (HEADER_NAME + TEMPORARY)
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
    except OSError as error:
        raise log_full(path, len(content), error) from error


def remove_run(run: Path) -> None:
    """Take a run back that could not be started."""
    for entry in run.iterdir():
        entry.unlink(missing_ok=True)
    run.rmdir()
