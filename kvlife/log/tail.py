"""The last segment, gone through on opening: where the log ends, and how."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

from kvlife.errors import LogCorrupt, LogError, LogTruncated
from kvlife.events import Violated
from kvlife.log.cursor import BadBytes
from kvlife.log.files import SegmentFile, written_beside_segments
from kvlife.log.segment_file import SegmentHead
from kvlife.log.walk import BadRecord, next_valid, num_events_in, records
from kvlife.log.wire import (
    CLOSE,
    CLOSE_BODY,
    GAP,
    MAX_PACKED_BYTES,
    SEAL,
    SEGMENT_HEAD_BYTES,
    SEQ,
    SEQS,
    SNAPSHOT,
)

_ADVICE = re.compile(r"(:|, or) use --salvage [a-z ]*")


@attrs.frozen(kw_only=True)
class CloseMark:
    """The writer closed the run: events in it, the next seq, and the final state's digest."""

    num_events: int
    next_seq: int
    digest: int | None


@attrs.frozen(kw_only=True)
class Gap:
    """Events [first_seq, next_seq) happened and are not in the log, as the disk was full."""

    first_seq: int
    next_seq: int


@attrs.define
class Tail:
    """What the last segment says of the log's end.

    `last_kind` is the kind of the record that holds the last event, or of a gap behind it; None
    where this segment does not tell. `mark` is the body of that of a violation. `bad` lists the bad
    records that valid ones follow, `torn` the one that none does.
    """

    next_seq: int
    last_kind: int | None = None
    mark: bytes = b""
    closed: CloseMark | None = None
    sealed: bool = False
    gaps: list[Gap] = attrs.field(factory=list)
    bad: list[BadRecord] = attrs.field(factory=list)
    torn: BadRecord | None = None


def read_close(content: bytes, body: int, end: int) -> CloseMark:
    """The mark in a CLOSE record."""
    num_events, next_seq, has_digest, digest = CLOSE_BODY.unpack(content[body:end])
    return CloseMark(
        num_events=num_events, next_seq=next_seq, digest=digest if has_digest else None
    )


def scan_tail(head: SegmentHead, content: bytes) -> Tail:
    """Go through the last segment without decoding its events."""
    tail = Tail(head.first_seq)
    offset: int | None = SEGMENT_HEAD_BYTES
    link: int | None = head.crc
    while offset is not None:
        try:
            _scan(tail, head, content, offset, link)
        except BadRecord as bad:
            offset, link = next_valid(content, bad.offset + 1), None
            if offset is None:
                tail.torn = bad
            else:
                tail.bad.append(bad)
        else:
            break
    if tail.bad:
        tail.last_kind = None
    return tail


def _scan(tail: Tail, head: SegmentHead, content: bytes, offset: int, link: int | None) -> None:
    for kind, body, end, _, _, _, _ in records(content, offset, link, head.step, head.time_ns):
        num_events = num_events_in(kind, content, body, end)
        if num_events:
            tail.next_seq += num_events
            tail.last_kind = kind
            if kind == Violated.CODE:
                tail.mark = content[body:end]
        elif kind == CLOSE and end - body == CLOSE_BODY.size:
            tail.closed = read_close(content, body, end)
            tail.next_seq = tail.closed.next_seq
        elif kind == SNAPSHOT and end - body == SEQ.size:
            (tail.next_seq,) = SEQ.unpack_from(content, body)
        elif kind == GAP and end - body == SEQS.size:
            first_seq, tail.next_seq = SEQS.unpack_from(content, body)
            tail.last_kind = GAP
            # The gap that a segment begins with is known from its head.
            if first_seq >= head.first_seq:
                tail.gaps.append(Gap(first_seq=first_seq, next_seq=tail.next_seq))
        elif kind == SEAL:
            tail.sealed = True


def without_advice(error: Exception) -> str:
    """What an error says, for who salvages: without the advice to do that."""
    return _ADVICE.sub("", str(error))


def damage_of(file: SegmentFile, tail: Tail, *, follower_lost: bool) -> LogError | None:
    """What of the last segment is no tear but damage."""
    if tail.bad:
        return LogCorrupt(
            f"{file.path}: offset {tail.bad[0].offset}: {tail.bad[0]}, and valid records follow it:"
            " use --salvage to go on from the next snapshot"
        )
    if tail.torn is not None and tail.sealed:
        return LogCorrupt(f"{file.path}: offset {tail.torn.offset}: {tail.torn}, behind the seal")
    if tail.sealed and tail.closed is None and not follower_lost:
        return LogTruncated(
            f"{file.path}: is sealed, so segment {file.idx + 1} followed it, and is missing:"
            " use --salvage to read what is there"
        )
    return None


def missing_segments(run: Path) -> LogTruncated | None:
    """What is missing in the folder of a run without any segment, if there ever was one."""
    beside = written_beside_segments(run)
    if not beside:
        return None
    return LogTruncated(
        f"{run}: all segments are missing, and with them every event, though {beside[0]} was"
        " written beside one: get the .seg and .segz files from where the run was written"
    )


def warning_of_end(file: SegmentFile, head: SegmentHead, tail: Tail, num_bytes: int) -> str | None:
    """What a reader should know of the end of a last segment of so many bytes."""
    if tail.torn is not None:
        return (
            f"{file.path.name}: an unreadable end was dropped at offset {tail.torn.offset}"
            f" ({tail.torn}): the log ends before seq {tail.next_seq}"
        )
    if not tail.sealed and num_bytes < head.file_bytes:
        return (
            f"{file.path.name}: cut to {num_bytes} of {head.file_bytes} bytes:"
            f" the log ends before seq {tail.next_seq}"
        )
    return None


def holds_records(file: SegmentFile) -> bool:
    """Whether a segment file holds a valid record."""
    with file.path.open("rb") as stream:
        content = stream.read(MAX_PACKED_BYTES)
    try:
        return next_valid(content, 0) is not None
    except BadBytes:
        return True
