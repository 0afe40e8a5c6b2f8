"""Going through a segment's bytes record by record, and finding a valid one behind a bad one."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kvlife.errors import LogVersionError
from kvlife.log.cursor import BadBytes, Cursor
from kvlife.log.wire import GROUP, LAST_EVENT_CODE, LONG, LONG_HEAD, RECORD_HEAD, SEAL

HEAD_BYTES = RECORD_HEAD.size
_LONG_HEAD_BYTES = HEAD_BYTES + LONG_HEAD.size
_CHUNK = 1 << 18
# More candidates than any log of ours has behind a bad record; it bounds the time of a scan.
_MAX_CANDIDATES = 1 << 18

# kind, where the body begins and ends, step, time, where the record begins, its crc
Record = tuple[int, int, int, int, int, int, int]


class BadRecord(BadBytes):
    """No valid record stands at `offset`."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


def records(
    content: bytes, offset: int, link: int | None, step: int, time_ns: int
) -> Iterator[Record]:
    """The records from `offset` to the clean end; raises `BadRecord`.

    `link` is the crc of what stands before the first record; None takes that record as it comes.
    """
    size = len(content)
    unpack = RECORD_HEAD.unpack_from
    crc32 = zlib.crc32
    view = memoryview(content)
    while offset + HEAD_BYTES <= size:
        crc, length, before, kind, dstep, dtime = unpack(content, offset)
        body = offset + HEAD_BYTES
        if kind & LONG:
            body += LONG_HEAD.size
            if length or body > size:
                break
            length, step, time_ns = LONG_HEAD.unpack_from(content, offset + HEAD_BYTES)
            kind ^= LONG
        else:
            step += dstep
            time_ns += dtime
        end = body + length
        if end > size or crc32(view[offset + 4 : end]) != crc:
            break
        if link is not None and before != link & 0xFFFF:
            raise BadRecord(offset, "the record is not the one that followed the record before it")
        yield kind, body, end, step, time_ns, offset, crc
        link = crc
        offset = end
    if content.count(0, offset) != size - offset:
        raise BadRecord(offset, _reason(content, offset))


def _reason(content: bytes, offset: int) -> str:
    left = len(content) - offset
    if left < HEAD_BYTES:
        return f"{left} bytes, less than a record's head"
    _, length, _, kind, _, _ = RECORD_HEAD.unpack_from(content, offset)
    if kind & LONG and left >= _LONG_HEAD_BYTES:
        length = LONG_HEAD.unpack_from(content, offset + HEAD_BYTES)[0]
    if length > left:
        return f"a record of {length} bytes where {left} are left"
    return "a record whose checksum does not fit"


def num_events_in(kind: int, content: bytes, body: int, end: int) -> int:
    """How many events a record holds, without decoding them; 0 for the log's own records."""
    if kind == GROUP:
        return Cursor(content, body, end).varint()
    return 1 if kind <= LAST_EVENT_CODE else 0


def refuse_unknown(kind: int) -> None:
    """Raise `LogVersionError` for a record of the log's own that this version does not know."""
    raise LogVersionError(
        f"a record of kind {kind:#x}, which this kvlife does not know:"
        " read the log with the version that wrote it, or a newer one"
    )


def next_valid(content: bytes, start: int) -> int | None:
    """The offset of the first valid record at or behind `start`.

    A candidate's lengths must fit, and what follows it must name its crc, or be nothing: that
    leaves few whose checksum has to be computed. Raises `BadBytes` where there are too many.
    """
    num_tried = 0
    used = len(content.rstrip(b"\0"))
    octets = np.frombuffer(content, np.uint8)
    for low in range(start, used, _CHUNK):
        offsets = np.arange(low, min(low + _CHUNK, used, len(content) - HEAD_BYTES + 1))
        for offset, end in zip(*_candidates(octets, offsets), strict=True):
            crc = int.from_bytes(content[offset : offset + 4], "little")
            if zlib.crc32(content[offset + 4 : end]) == crc:
                return int(offset)
            num_tried += 1
            if num_tried > _MAX_CANDIDATES:
                raise BadBytes("a bad record, and behind it no end of what may be records")
    return None


def _candidates(
    octets: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    size = len(octets)
    kinds = octets[offsets + 8]
    lengths = _number(octets, offsets + 4, 2)
    known = (kinds & 0x7F) <= SEAL
    is_long = (kinds & LONG) != 0
    known &= ~is_long | ((lengths == 0) & (offsets + _LONG_HEAD_BYTES <= size))
    offsets, lengths, is_long = offsets[known], lengths[known], is_long[known]
    ends = offsets + HEAD_BYTES + lengths
    long_at = offsets[is_long]
    ends[is_long] = long_at + _LONG_HEAD_BYTES + _number(octets, long_at + HEAD_BYTES, 4)
    fits = ends <= size
    offsets, ends = offsets[fits], ends[fits]
    padded = np.concatenate([octets, np.zeros(HEAD_BYTES, np.uint8)])
    links = _number(padded, ends + 6, 2)
    ends_log = (_number(padded, ends, 4) == 0) & (_number(padded, ends + 4, 4) == 0)
    follows = (links == _number(octets, offsets, 2)) | ends_log
    return offsets[follows], ends[follows]


def _number(
    octets: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], width: int
) -> npt.NDArray[np.int64]:
    number = octets[at].astype(np.int64)
    for byte in range(1, width):
        number |= octets[at + byte].astype(np.int64) << (8 * byte)
    return number
