"""Where a command writes what it was asked for: never into a run, and whole or not at all.

Whatever is to be written is vetted here before any work is done; a link counts as what it leads to.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kvlife.errors import ConfigError
from kvlife.log.files import HEADER_NAME


def refuse_output(output: Path, what: str, *, source: Path, option: str = "-o") -> None:
    """Before any work is done: raise `ConfigError` where the file cannot be, or must not.

    `source` is what is read. An older file of that name is replaced, unless it is the source.
    """
    if output.is_dir():
        raise ConfigError(f"{option} {output}: is a folder: name the {what} to write")
    if output.exists():
        if not output.is_file():
            raise ConfigError(
                f"{option} {output}: is a device or a pipe, and only a file is written whole:"
                f" name the {what} to write"
            )
        if source.exists() and output.samefile(source):
            raise ConfigError(f"{option} {output}: is what is read: name another file")
        if any(_is_open_as(fd, output) for fd in (1, 2)):
            raise ConfigError(
                f"{option} {output}: is where the output of the command itself goes: name a file"
                " of its own"
            )
    _refuse_run(output, option)
    _refuse_parent(output, option)


def _is_open_as(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False  # it is closed


def refuse_new_file(output: Path, what: str, *, option: str = "-o") -> None:
    """As `refuse_output` where nothing is to be replaced: the file must not be there yet."""
    if os.path.lexists(output):
        raise ConfigError(f"{option} {output}: is there already: name a new file for the {what}")
    _refuse_run(output, option)
    _refuse_parent(output, option)


def refuse_output_folder(output: Path, *, option: str = "-o") -> None:
    """As `refuse_output` for a folder, which must be a new or an empty one."""
    _refuse_taken(output, option)
    _refuse_run(output, option)
    _refuse_parent(output, option)


def refuse_log(output: Path, *, new: bool = False, option: str = "-o") -> None:
    """As `refuse_output` for a folder that gets a run, and is made with those above it."""
    if new:
        _refuse_taken(output, option)
    _refuse_run(output, option)
    folder = _real(output, option)
    while not folder.exists():
        folder = folder.parent
    _refuse_folder(output, folder, option)


def _refuse_taken(output: Path, option: str) -> None:
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"{option} {output}: is there already: name a new or an empty folder")


def _refuse_run(output: Path, option: str) -> None:
    real = _real(output, option)
    for folder in (real, *real.parents):
        if (folder / HEADER_NAME).exists():
            raise ConfigError(
                f"{option} {output}: lies in a run's folder, {folder}, and nothing is written there"
            )


def _refuse_parent(output: Path, option: str) -> None:
    folder = _real(output, option).parent
    if not folder.exists():
        raise ConfigError(f"{option} {output}: there is no folder {folder}: make it first")
    _refuse_folder(output, folder, option)


def _refuse_folder(output: Path, folder: Path, option: str) -> None:
    if not folder.is_dir():
        raise ConfigError(f"{option} {output}: {folder} is a file, not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{option} {output}: the folder {folder} may not be written to")


def _real(output: Path, option: str = "-o") -> Path:
    """What a path leads to, whether it is there or not."""
    real = Path(os.path.realpath(output))
    if real.is_symlink():
        raise ConfigError(f"{option} {output}: is a link that leads back to itself")
    return real


@contextmanager
def new_file(output: Path, *, option: str = "-o") -> Iterator[BinaryIO]:
    """A file that gets its name at the end, and goes where there is an error."""
    beside = _beside(output)
    try:
        with beside.open("w+b") as file:
            yield file
        beside.replace(_real(output))
    except BaseException as error:
        beside.unlink(missing_ok=True)
        _refuse_unwritten(output, beside, error, option)
        raise


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """A folder that gets its name at the end, and goes where there is an error."""
    beside = _beside(output)
    try:
        beside.mkdir()
        yield beside
        beside.replace(_real(output))
    except BaseException as error:
        shutil.rmtree(beside, ignore_errors=True)
        _refuse_unwritten(output, beside, error)
        raise


def _beside(output: Path) -> Path:
    real = _real(output)
    return real.with_name(f".{real.name}.{os.getpid()}.tmp")


def _refuse_unwritten(output: Path, beside: Path, error: BaseException, option: str = "-o") -> None:
    """Say of an error that it is the output's, unless it names a file of something else."""
    if isinstance(error, OSError) and str(error.filename or beside).startswith(str(beside)):
        reason = error.strerror or error
        raise ConfigError(f"{option} {output}: cannot be written ({reason})") from error
