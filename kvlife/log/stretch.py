"""One stretch of reading: segment after segment, every record checked against what came before."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import attrs

from kvlife.config import Layout
from kvlife.errors import LogCorrupt, LogTruncated, LogVersionError
from kvlife.events import Recorded
from kvlife.log.cursor import BadBytes
from kvlife.log.decode import Decoder
from kvlife.log.files import SegmentFile
from kvlife.log.segment_file import SegmentHead
from kvlife.log.tail import read_close
from kvlife.log.walk import BadRecord, records, refuse_unknown
from kvlife.log.wire import (
    BATCH,
    CLOSE,
    CLOSE_BODY,
    GAP,
    LAST_EVENT_CODE,
    RESET,
    SEAL,
    SEGMENT_HEAD_BYTES,
    SEQ,
    SEQS,
    SNAPSHOT,
)

LoadSegment = Callable[[SegmentFile], tuple[SegmentHead, bytes]]


@attrs.frozen(kw_only=True)
class Position:
    """Where reading begins: in which segment (of the run's list), at which record, at which seq."""

    place: int
    offset: int
    seq: int


class Stretch:
    """Reads groups from a position on; `seq` is the next event's, also after an error.

    `layout` is that of the pools at the position.
    """

    def __init__(
        self,
        layout: Layout,
        load: LoadSegment,
        files: list[SegmentFile],
        count_unknown: Callable[[int, list[int]], None],
    ) -> None:
        self._decoder = Decoder(layout)
        self._count_unknown = count_unknown
        self._load = load
        self._files = files
        self._sealed = False
        self._last_crc = 0
        self.seq = 0

    def groups(self, position: Position, stop: int) -> Iterator[list[Recorded]]:
        """The groups from the position up to, not including, the one at seq `stop`."""
        self.seq = position.seq
        offset = position.offset
        before: SegmentHead | None = None
        for place in range(position.place, len(self._files)):
            if self.seq >= stop:
                return
            file = self._files[place]
            head, content = self._load(file)
            if before is not None:
                self._check_chain(file, head, before)
            self._sealed = False
            self._last_crc = head.crc
            if offset <= SEGMENT_HEAD_BYTES:
                self.seq = head.after_seq
            try:
                for group in self._segment(file, head, content, offset):
                    if group[0].seq >= stop:
                        return
                    yield group
                    # What stands behind the last event asked for may be a tear.
                    if self.seq >= stop:
                        return
            except BadRecord as bad:
                raise LogCorrupt(
                    f"{file.path}: offset {bad.offset}: {bad}; what follows it is readable:"
                    " use --salvage to go on from the next snapshot"
                ) from bad
            before, offset = head, 0
        if self.seq < stop:
            raise LogTruncated(f"{self._files[-1].path}: ends at seq {self.seq}, before {stop}")

    def _check_chain(self, file: SegmentFile, head: SegmentHead, before: SegmentHead) -> None:
        if head.idx != before.idx + 1:
            raise LogTruncated(
                f"{file.path}: segment {before.idx + 1} is missing before it:"
                " use --salvage to go on from the next snapshot"
            )
        if head.after_seq != self.seq or head.last_crc != self._last_crc:
            raise LogCorrupt(
                f"{file.path}: follows another segment than the one before it, which ends at seq"
                f" {self.seq}: use --salvage to go on from the next snapshot"
            )

    def _segment(
        self, file: SegmentFile, head: SegmentHead, content: bytes, offset: int
    ) -> Iterator[list[Recorded]]:
        decoder = self._decoder
        decoder.reset()
        link: int | None = None
        at_snapshot = offset > SEGMENT_HEAD_BYTES
        if not at_snapshot:
            offset, link = SEGMENT_HEAD_BYTES, head.crc
        walk = records(content, offset, link, head.step, head.time_ns)
        for kind, body, end, step, time_ns, offset, crc in walk:
            try:
                if self._sealed or at_snapshot:
                    self._check_place(kind)
                    at_snapshot = False
                if kind > LAST_EVENT_CODE:
                    self._control(kind, decoder, content, body, end)
                    # The seal is written after the next segment's head, which names what was last.
                    if kind != SEAL:
                        self._last_crc = crc
                    continue
                events = decoder.group(kind, content, body, end)
            except BadBytes as bad:
                raise BadRecord(offset, str(bad)) from bad
            except LogVersionError as error:
                raise LogVersionError(f"{file.path}: offset {offset}: {error}") from error
            seq = self.seq
            self.seq = seq + len(events)
            self._last_crc = crc
            if decoder.unknown:
                self._count_unknown(seq, decoder.unknown)
                decoder.unknown = []
            yield [
                # An unknown kind stands in for an event that this version has no class for.
                Recorded(seq + idx, step, time_ns, event)  # type: ignore[arg-type]
                for idx, event in enumerate(events)
            ]

    def _check_place(self, kind: int) -> None:
        if self._sealed:
            raise BadBytes("a record behind the segment's seal")
        if kind != SNAPSHOT:
            raise BadBytes("no snapshot's record, where a snapshot says its own is")

    def _control(self, kind: int, decoder: Decoder, content: bytes, body: int, end: int) -> None:
        if kind == BATCH:
            decoder.define(content, body, end)
        elif kind == RESET:
            decoder.reset()
        elif kind == SNAPSHOT:
            (seq,) = _unpack(SEQ, content, body, end)
            self._expect("a snapshot", seq)
            decoder.reset()
        elif kind == GAP:
            first_seq, next_seq = _unpack(SEQS, content, body, end)
            self._expect("a gap", first_seq)
            if next_seq <= first_seq:
                raise BadBytes(f"a gap from seq {first_seq} to {next_seq}")
            self.seq = next_seq
            decoder.widen()
        elif kind == SEAL:
            self._expect("a seal", _unpack(SEQS, content, body, end)[1])
            self._sealed = True
        elif kind == CLOSE:
            _unpack(CLOSE_BODY, content, body, end)
            self._expect("the end mark", read_close(content, body, end).next_seq)
        else:
            refuse_unknown(kind)

    def _expect(self, what: str, seq: int) -> None:
        if seq != self.seq:
            raise BadBytes(f"{what} names seq {seq}, the events before it end at {self.seq}")


def _unpack(form: struct.Struct, content: bytes, body: int, end: int) -> tuple[int, ...]:
    if end - body != form.size:
        raise BadBytes(f"{end - body} bytes where {form.size} must stand")
    return form.unpack_from(content, body)
