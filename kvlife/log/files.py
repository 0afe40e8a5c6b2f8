"""The names of a log's files: run directories, segments, snapshots."""

from __future__ import annotations

import os
import re
from pathlib import Path

import attrs

from kvlife.errors import LogError

HEADER_NAME = "header.json"
TEMPORARY = ".tmp"

_RUN = re.compile(r"run-(\d{6,12})\Z")
_SEGMENT = re.compile(r"(\d{8})-(\d{20})\.(seg|segz)\Z")
_SNAPSHOT = re.compile(r"(\d{20})\.snap\Z")
# What a run's folder holds beside its header and temporary files.
RUN_FILE = re.compile(r"(\d{8}-\d{20}\.(seg|segz|names)|\d{20}\.snap)\Z", re.ASCII)


@attrs.frozen(kw_only=True)
class SegmentFile:
    """A segment as its name tells it; `packed` ones are compressed."""

    path: Path
    idx: int
    first_seq: int
    packed: bool


def run_path(root: Path, number: int) -> Path:
    """Where the run of this number lies."""
    return root / f"run-{number:06d}"


def segment_path(run: Path, idx: int, first_seq: int, *, packed: bool = False) -> Path:
    """Where a segment lies."""
    return run / f"{idx:08d}-{first_seq:020d}.{'segz' if packed else 'seg'}"


def names_path(run: Path, idx: int, first_seq: int) -> Path:
    """Where the names of a segment lie."""
    return run / f"{idx:08d}-{first_seq:020d}.names"


def snapshot_path(run: Path, seq: int) -> Path:
    """Where the snapshot of the state before `seq` lies."""
    return run / f"{seq:020d}.snap"


def is_run_name(name: str) -> bool:
    """Whether a folder of this name is that of a run."""
    return _RUN.match(name) is not None


def list_runs(root: str | os.PathLike[str]) -> list[Path]:
    """The run directories in a log's root, the oldest first."""
    found = []
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                match = _RUN.match(entry.name)
                if match and entry.is_dir():
                    found.append((int(match[1]), Path(entry.path)))
    except OSError as error:
        raise LogError(f"{os.fspath(root)}: cannot be listed ({error.strerror})") from error
    return [path for _, path in sorted(found)]


def list_run(run: Path) -> tuple[list[SegmentFile], list[int]]:
    """The segments of a run in order, each once, and the seqs of its snapshots.

    A compressed segment beside its raw one is complete: the raw one was about to go.
    """
    segments: dict[int, SegmentFile] = {}
    snapshots = []
    try:
        with os.scandir(run) as entries:
            names = [_named(entry) for entry in entries]
    except OSError as error:
        raise LogError(f"{run}: cannot be listed ({error.strerror})") from error
    for name in sorted(names):
        if match := _SEGMENT.match(name):
            file = SegmentFile(
                path=run / name,
                idx=int(match[1]),
                first_seq=int(match[2]),
                packed=match[3] == "segz",
            )
            segments[file.idx] = _the_one(segments.get(file.idx), file)
        elif match := _SNAPSHOT.match(name):
            snapshots.append(int(match[1]))
    return [segments[idx] for idx in sorted(segments)], sorted(snapshots)


def _named(entry: os.DirEntry[str]) -> str:
    """The name of an entry; raises `LogError` where a file of a run is a pipe, a folder, ..."""
    if RUN_FILE.match(entry.name) and not entry.is_file():
        refuse_no_file(Path(entry.path))
    return entry.name


def refuse_no_file(path: Path) -> None:
    """Raise `LogError` for what is there and is no file: reading a pipe would wait for ever."""
    if path.exists() and not path.is_file():
        raise LogError(f"{path}: is no file")


def written_beside_segments(run: Path) -> list[str]:
    """The files in a run's folder that are written only where a segment is: names, snapshots."""
    try:
        found = [path.name for path in run.iterdir() if RUN_FILE.match(path.name)]
    except OSError as error:
        raise LogError(f"{run}: cannot be listed ({error.strerror})") from error
    return sorted(name for name in found if name.endswith((".names", ".snap")))


def _the_one(before: SegmentFile | None, file: SegmentFile) -> SegmentFile:
    if before is None:
        return file
    if before.first_seq != file.first_seq:
        raise LogError(f"{file.path}: a second segment {file.idx}, beside {before.path.name}")
    return file if file.packed else before
