"""Where a command writes what it was asked for: never into a run, and whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kvlife.errors import ConfigError
from kvlife.log.files import HEADER_NAME


def refuse_output(output: Path, what: str) -> None:
    """Before any work is done: raise `ConfigError` where the file cannot be, or lies in a run."""
    if output.is_dir():
        raise ConfigError(f"-o {output}: is a folder: name the {what} to write")
    _refuse_place(output)


def refuse_output_folder(output: Path) -> None:
    """As `refuse_output` for a folder, which must be a new or an empty one."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"-o {output}: is there already: name a new or an empty folder")
    _refuse_place(output)


def _refuse_place(output: Path) -> None:
    folder = output.parent
    if not folder.is_dir():
        raise ConfigError(f"-o {output}: there is no folder {folder}: make it first")
    if (folder / HEADER_NAME).exists():
        raise ConfigError(f"-o {output}: lies in a run's folder, and nothing is written there")


@contextmanager
def new_file(output: Path) -> Iterator[BinaryIO]:
    """A file that gets its name at the end, and goes where there is an error."""
    beside = _beside(output)
    try:
        with beside.open("w+b") as file:
            yield file
        beside.replace(output)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        _refuse_unwritten(output, beside, error)
        raise


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """A folder that gets its name at the end, and goes where there is an error."""
    beside = _beside(output)
    try:
        beside.mkdir()
        yield beside
        beside.replace(output)
    except BaseException as error:
        shutil.rmtree(beside, ignore_errors=True)
        _refuse_unwritten(output, beside, error)
        raise


def _beside(output: Path) -> Path:
    return output.with_name(f".{output.name}.{os.getpid()}.tmp")


def _refuse_unwritten(output: Path, beside: Path, error: BaseException) -> None:
    """Say of an error that it is the output's, unless it names a file of something else."""
    if isinstance(error, OSError) and str(error.filename or beside).startswith(str(beside)):
        raise ConfigError(f"-o {output}: cannot be written ({error.strerror or error})") from error
