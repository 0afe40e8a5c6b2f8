"""Reading on in a run while another process writes it: each look takes up where the last ended."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import attrs

from kvlife.config import compile_layout
from kvlife.errors import LogCorrupt, LogError
from kvlife.events import Recorded
from kvlife.ledger import FrozenState
from kvlife.log.claim import is_live
from kvlife.log.cursor import BadBytes
from kvlife.log.decode import Decoder, UnknownEvent
from kvlife.log.files import HEADER_NAME, SegmentFile, list_run, snapshot_path
from kvlife.log.header import RunHeader, decode_header, read_header
from kvlife.log.packed import UnpackedRun, is_pack
from kvlife.log.segment_file import SegmentHead, read_segment
from kvlife.log.snapshot_file import read_snapshot
from kvlife.log.tail import CloseMark, read_close
from kvlife.log.walk import BadRecord, records, refuse_unknown
from kvlife.log.wire import (
    BATCH,
    CLOSE,
    GAP,
    LAST_EVENT_CODE,
    RESET,
    SEAL,
    SEGMENT_HEAD_BYTES,
    SNAPSHOT,
)


class Overtaken(LogError):
    """What comes next is not in the log, or not any more: begin again at a newer snapshot."""


@attrs.define
class _Place:
    """Before which record to go on: its segment and offset, and what the record before it was.

    At the beginning of a segment, and at a snapshot, the segment's head is what stands before.
    """

    idx: int
    offset: int = 0
    link: int | None = None
    step: int | None = None
    time_ns: int = 0
    sealed: bool = False


class FollowedRun:
    """A run that is read to its present end again and again, and each event once.

    `seq` is the next event's. `closed` is the end mark, once it was read. `torn` says what stands
    where the readable part ends, if anything does: in a run that is being written, a record that is
    not whole yet. `num_unknown` counts events of kinds that this version does not know.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the header, and nothing else; raises `LogError` where there is none."""
        self.path = self._folder = Path(path)
        if is_pack(self.path):
            self._unpacked = UnpackedRun(self.path)
            self._folder = self._unpacked.folder
        content = read_header(self._folder / HEADER_NAME)
        self.header: RunHeader = decode_header(content, str(self._folder / HEADER_NAME))
        self.layout = compile_layout(self.header.config)
        self.seq = 0
        self.closed: CloseMark | None = None
        self.torn = ""
        self.num_unknown = 0
        self._header_crc = zlib.crc32(content)
        self._place = _Place(0)
        self._decoder = Decoder(self.layout)

    @property
    def is_live(self) -> bool:
        """Whether a writer is at work."""
        return is_live(self._folder)

    @property
    def size_bytes(self) -> int:
        """The bytes of the run's files; of the segment that is written, those read so far."""
        files, snapshots = list_run(self._folder)
        total = sum(_size_of(snapshot_path(self._folder, seq)) for seq in snapshots)
        for file in files:
            written = file.idx == self._place.idx and not file.packed
            total += self._place.offset if written else _size_of(file.path)
        return total

    def start(self) -> FrozenState | None:
        """Go to the newest state that can be read, and return it; None is the empty state.

        Raises `LogError` where the log has neither its beginning nor a snapshot.
        """
        files, snapshots = list_run(self._folder)
        present = {file.idx for file in files}
        for seq in reversed(snapshots):
            try:
                head, state = read_snapshot(snapshot_path(self._folder, seq), self.layout)
            except (OSError, LogError):
                continue  # half written, or removed since it was listed: an older one serves
            if head.header_crc == self._header_crc and head.segment_idx in present:
                self._begin(_Place(head.segment_idx, head.offset), head.seq)
                # What size the pools have by now is not known.
                self._decoder.widen()
                return state
        if files and files[0].idx:
            raise LogError(f"{self.path}: history begins later, and no snapshot can be read")
        self._begin(_Place(0), 0)
        return None

    def has_newer_snapshot(self) -> bool:
        """Whether `start` would come to a later state than this one."""
        return any(seq > self.seq for seq in list_run(self._folder)[1])

    def groups(self) -> Iterator[list[Recorded]]:
        """The groups that were written since; it may be left at any of them.

        Raises `Overtaken` where the next one is missing, `LogCorrupt` for what no writer writes.
        """
        while self.closed is None:
            file = self._file()
            if file is None:
                return
            try:
                head, content = read_segment(file, self._header_crc)
            except FileNotFoundError:
                return  # compressed, or removed, since it was listed: the next look sees that
            yield from self._segment(file, head, content)
            if not self._place.sealed:
                return
            self._place = _Place(file.idx + 1)

    def _begin(self, place: _Place, seq: int) -> None:
        self._place, self.seq, self.closed, self.torn = place, seq, None, ""
        self._decoder = Decoder(self.layout)

    def _file(self) -> SegmentFile | None:
        files, _ = list_run(self._folder)
        for file in files:
            if file.idx == self._place.idx:
                return file
        if any(file.idx > self._place.idx for file in files):
            raise Overtaken(f"{self.path}: segment {self._place.idx} is gone")
        return None

    def _segment(
        self, file: SegmentFile, head: SegmentHead, content: bytes
    ) -> Iterator[list[Recorded]]:
        place = self._place
        if not place.offset:
            self._enter(head)
        if place.step is None:
            place.step, place.time_ns = head.step, head.time_ns
        self.torn = ""
        walk = records(content, place.offset, place.link, place.step, place.time_ns)
        try:
            for kind, body, end, step, time_ns, _, crc in walk:
                group = self._take(kind, content, body, end, step, time_ns)
                place.offset, place.link, place.step, place.time_ns = end, crc, step, time_ns
                if group:
                    yield group
        except BadRecord as bad:
            self.torn = f"offset {bad.offset}: {bad}"
        except BadBytes as bad:
            raise LogCorrupt(f"{file.path}: offset {place.offset}: {bad}") from bad

    def _enter(self, head: SegmentHead) -> None:
        """Go on at the beginning of a segment."""
        if head.after_seq != self.seq:
            raise Overtaken(f"{self.path}: segment {head.idx} follows seq {head.after_seq}")
        self._decoder.reset()
        self._place.offset, self._place.link = SEGMENT_HEAD_BYTES, head.crc

    def _take(
        self, kind: int, content: bytes, body: int, end: int, step: int, time_ns: int
    ) -> list[Recorded]:
        """The events of a record; none for a record of the log's own."""
        if kind > LAST_EVENT_CODE:
            self._control(kind, content, body, end)
            return []
        events = self._decoder.group(kind, content, body, end)
        self.num_unknown += sum(type(event) is UnknownEvent for event in events)
        seq = self.seq
        self.seq += len(events)
        return [
            # An unknown kind stands in for an event that this version has no class for.
            Recorded(seq + number, step, time_ns, event)  # type: ignore[arg-type]
            for number, event in enumerate(events)
        ]

    def _control(self, kind: int, content: bytes, body: int, end: int) -> None:
        if kind == BATCH:
            self._decoder.define(content, body, end)
        elif kind in (RESET, SNAPSHOT):
            self._decoder.reset()
        elif kind == GAP:
            raise Overtaken(f"{self.path}: events from seq {self.seq} on are not in the log")
        elif kind == SEAL:
            self._place.sealed = True
        elif kind == CLOSE:
            self.closed = read_close(content, body, end)
        else:
            refuse_unknown(kind)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # removed since it was listed
