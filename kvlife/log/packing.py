"""Which files of a run go into a pack, and as what.

Files go as they are, damage included: what a colleague reads is what was written. A raw segment is
compressed as the log would have done, and where the pack ends within a segment, that is cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvlife.errors import LogCorrupt
from kvlife.log.files import HEADER_NAME, SegmentFile, list_run, names_path, snapshot_path
from kvlife.log.packed import PackMember
from kvlife.log.reader import LogRun
from kvlife.log.segment_file import SegmentHead, compressed_segment, has_sound_head
from kvlife.log.snapshot_file import read_head
from kvlife.log.walk import BadRecord, num_events_in, records
from kvlife.log.wire import (
    CLOSE,
    GAP,
    MAX_PACKED_BYTES,
    SEAL,
    SEGMENT_HEAD_BYTES,
    SEQS,
)

_PIECE = 1 << 20


def members_of_run(run: LogRun, start: int, stop: int | None) -> Iterator[PackMember]:
    """The files of a run from a known state on, up to the event `stop` or to the end.

    Of a run that is being written, what it had when it was opened. Raises `LogError` where files
    are removed meanwhile.
    """
    if run.live and stop is None:
        stop = run.next_seq
    yield _whole(run.folder / HEADER_NAME)
    wanted = _wanted(run, start, stop)
    for place, file in enumerate(wanted):
        yield from _segment(run, file, stop if place + 1 == len(wanted) else None)
    for seq in run.snapshots:
        if seq == start or (seq > start and (stop is None or seq < stop)):
            yield _whole(snapshot_path(run.folder, seq))


def members_of_folder(folder: Path) -> Iterator[PackMember]:
    """All files of a run that nobody else writes, the raw segments compressed."""
    yield _whole(folder / HEADER_NAME)
    files, snapshots = list_run(folder)
    for file in files:
        yield _as_it_is(file)
        yield from _names(folder, file)
    for seq in snapshots:
        yield _whole(snapshot_path(folder, seq))


def _wanted(run: LogRun, start: int, stop: int | None) -> list[SegmentFile]:
    first_idx = 0
    if start in run.snapshots:
        first_idx = read_head(snapshot_path(run.folder, start)).segment_idx
    found = [file for file in list_run(run.folder)[0] if file.idx >= first_idx]
    if stop is None:
        return found
    return found[:1] + [file for file in found[1:] if file.first_seq < stop]


def _segment(run: LogRun, file: SegmentFile, stop: int | None) -> Iterator[PackMember]:
    if stop is not None:
        head, content = run.load_segment(file)
        try:
            yield _compressed(file, _cut(head, content, stop))
        except BadRecord as bad:
            raise LogCorrupt(
                f"{file.path}: offset {bad.offset}: {bad}, so it cannot be cut behind seq"
                f" {stop - 1}: pack all of it"
            ) from bad
        return
    try:
        member = _as_it_is(file)
    except FileNotFoundError:
        # The writer compressed it since it was listed.
        member = _compressed(file, run.load_segment(file)[1])
    yield member
    yield from _names(run.folder, file)


def _as_it_is(file: SegmentFile) -> PackMember:
    content = file.path.read_bytes()
    if file.packed or not has_sound_head(content):
        return PackMember(file.path.name, [content])
    return _compressed(file, content)


def _compressed(file: SegmentFile, content: bytes) -> PackMember:
    if len(content) > MAX_PACKED_BYTES:
        return PackMember(file.path.with_suffix(".seg").name, [content])
    return PackMember(file.path.with_suffix(".segz").name, [compressed_segment(content)])


def _cut(head: SegmentHead, content: bytes, stop: int) -> bytes:
    """The segment as it would be, had the process died before event `stop`."""
    seq = head.first_seq
    walk = records(content, SEGMENT_HEAD_BYTES, head.crc, head.step, head.time_ns)
    for kind, body, end, _, _, offset, _ in walk:
        num = num_events_in(kind, content, body, end)
        if seq >= stop and (num or kind in (CLOSE, SEAL, GAP)):
            reserved = min(head.file_bytes, MAX_PACKED_BYTES)
            return content[:offset] + bytes(max(reserved - offset, 0))
        seq += num
        if kind == GAP:
            seq = SEQS.unpack_from(content, body)[1]
    return content


def _names(folder: Path, file: SegmentFile) -> Iterator[PackMember]:
    path = names_path(folder, file.idx, file.first_seq)
    if path.exists():
        yield _whole(path)


def _whole(path: Path) -> PackMember:
    return PackMember(path.name, _read(path))


def _read(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece
