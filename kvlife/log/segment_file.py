"""A segment as it is read: its head, checked against name and run, and its content."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import BinaryIO

import attrs

from kvlife.errors import LogCorrupt, LogTruncated, LogVersionError
from kvlife.log.files import SegmentFile
from kvlife.log.wire import (
    CRC,
    FORMAT_VERSION,
    MAX_PACKED_BYTES,
    PACKED_HEAD,
    PACKED_MAGIC,
    SEGMENT_HEAD,
    SEGMENT_HEAD_BYTES,
    SEGMENT_MAGIC,
)
from kvlife.log.zstd import Compressor, decompress


class UnreadableHead(LogCorrupt):
    """A segment whose head is damaged or cut; the name alone says what it was."""


@attrs.frozen(kw_only=True)
class SegmentHead:
    """What a segment says of itself; `crc` is what its first record follows.

    `after_seq` is the next seq of the segment before; it is below `first_seq` where a gap lies.
    """

    idx: int
    first_seq: int
    after_seq: int
    step: int
    time_ns: int
    file_bytes: int
    last_crc: int
    header_crc: int
    crc: int


def read_segment_head(file: SegmentFile, header_crc: int) -> SegmentHead:
    """The head of a segment file; raises `LogCorrupt` or `LogTruncated` naming it."""
    with file.path.open("rb") as stream:
        return _parse(stream.read(SEGMENT_HEAD_BYTES), file, header_crc)


def read_segment(file: SegmentFile, header_crc: int) -> tuple[SegmentHead, bytes]:
    """Head and whole content of a segment, decompressed; no more than the head justifies."""
    with file.path.open("rb") as stream:
        head = _parse(stream.read(SEGMENT_HEAD_BYTES), file, header_crc)
        if file.packed:
            return head, _unpack(stream, head, file.path)
        size = os.fstat(stream.fileno()).st_size
        if size > head.file_bytes:
            raise LogCorrupt(f"{file.path}: {size} bytes, its head names {head.file_bytes}")
        stream.seek(0)
        return head, stream.read(size)


def compressed_segment(content: bytes) -> bytes:
    """The content of a compressed segment file, of a raw one's of at most `MAX_PACKED_BYTES`."""
    stream = Compressor()
    frame = stream.feed(content) + stream.finish()
    head = PACKED_HEAD.pack(PACKED_MAGIC, len(content), len(frame), zlib.crc32(content))
    return content[:SEGMENT_HEAD_BYTES] + head + CRC.pack(zlib.crc32(head)) + frame


def has_sound_head(content: bytes) -> bool:
    """Whether bytes begin with a segment's head, and its checksum fits."""
    return (
        len(content) >= SEGMENT_HEAD_BYTES
        and content.startswith(SEGMENT_MAGIC)
        and CRC.unpack_from(content, SEGMENT_HEAD.size)[0]
        == zlib.crc32(content[: SEGMENT_HEAD.size])
    )


def _parse(content: bytes, file: SegmentFile, header_crc: int) -> SegmentHead:
    where = file.path
    if len(content) < SEGMENT_HEAD_BYTES:
        raise UnreadableHead(f"{where}: {len(content)} bytes, shorter than a segment's head")
    _, version, head_bytes, *fields = SEGMENT_HEAD.unpack_from(content)
    crc = CRC.unpack_from(content, SEGMENT_HEAD.size)[0]
    if not has_sound_head(content):
        raise UnreadableHead(f"{where}: offset 0: the segment's head is damaged")
    if version > FORMAT_VERSION or head_bytes != SEGMENT_HEAD_BYTES:
        raise LogVersionError(
            f"{where}: written in format {version}, this kvlife reads up to {FORMAT_VERSION}"
        )
    names = [field.name for field in attrs.fields(SegmentHead)]
    head = SegmentHead(**dict(zip(names, (*fields, crc), strict=True)))
    if (head.idx, head.first_seq) != (file.idx, file.first_seq):
        raise LogCorrupt(
            f"{where}: its head says segment {head.idx} from seq {head.first_seq}:"
            " the file was renamed or swapped"
        )
    if head.header_crc != header_crc:
        raise LogCorrupt(f"{where}: written under another header than this run's header.json")
    if head.after_seq > head.first_seq or (head.idx == 0 and head.first_seq):
        raise LogCorrupt(f"{where}: begins at seq {head.first_seq}, behind seq {head.after_seq}")
    return head


def _unpack(stream: BinaryIO, head: SegmentHead, path: Path) -> bytes:
    size = PACKED_HEAD.size + CRC.size
    content = stream.read(size)
    if len(content) < size:
        raise LogTruncated(f"{path}: ends within its head")
    magic, raw_bytes, stored_bytes, raw_crc = PACKED_HEAD.unpack_from(content)
    crc = CRC.unpack_from(content, PACKED_HEAD.size)[0]
    if magic != PACKED_MAGIC or zlib.crc32(content[: PACKED_HEAD.size]) != crc:
        raise LogCorrupt(
            f"{path}: offset {SEGMENT_HEAD_BYTES}: the compressed part's head is damaged"
        )
    if raw_bytes > min(MAX_PACKED_BYTES, head.file_bytes):
        raise LogCorrupt(f"{path}: {raw_bytes} bytes claimed, at most {MAX_PACKED_BYTES}")
    left = os.fstat(stream.fileno()).st_size - stream.tell()
    if stored_bytes != left:
        raise LogTruncated(f"{path}: {left} compressed bytes, its head names {stored_bytes}")
    raw = decompress(stream.read(stored_bytes), raw_bytes, str(path))
    if zlib.crc32(raw) != raw_crc:
        raise LogCorrupt(f"{path}: the content's checksum does not fit")
    if _raw_head_crc(raw) != head.crc:
        raise LogCorrupt(f"{path}: compressed from another segment")
    return raw


def _raw_head_crc(raw: bytes) -> int | None:
    if len(raw) < SEGMENT_HEAD_BYTES:
        return None
    crc: int = CRC.unpack_from(raw, SEGMENT_HEAD.size)[0]
    return crc
