"""What each stretch of a sealed segment names, in a small file beside it.

A reader that looks for one page, row, request or session passes over the stretches that do not name
it. It believes a file only where its checksums fit and it was made for this very segment; without
one it reads everything.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import numpy as np

from kvlife.errors import LogCorrupt
from kvlife.log.cursor import BadBytes
from kvlife.log.segment_file import SegmentHead
from kvlife.log.zstd import Compressor, decompress

NAMES_MAGIC: Final = b"KVLIFENM"
NAMES_VERSION: Final = 1
# A larger content is not written, nor read.
MAX_NAMES_BYTES: Final = 64 << 20

# magic, version, nothing, crc of the segment's head, raw bytes, compressed bytes, crc of the raw
# bytes
_HEAD: Final = struct.Struct("<8sHHIQQI")
_SEQ: Final = struct.Struct("<Q")
_NUMBER: Final = struct.Struct("<I")
_HEAD_BYTES: Final = _HEAD.size + _NUMBER.size


@attrs.frozen(kw_only=True)
class StretchNames:
    """What the events from `first_seq` up to the next stretch name.

    `named` and `taken` hold bits by page, for each page space: the pages that an event names, and
    those that one takes from the free list. `rows` holds bits by row; `requests` and `sessions`
    hold the crc32 of ids, 4 bytes each, rising. A name that is not here is not named; one that is
    here may not be.
    """

    first_seq: int
    named: tuple[bytes, ...]
    taken: tuple[bytes, ...]
    rows: bytes
    requests: bytes
    sessions: bytes

    def names_page(self, space_idx: int | None, page: int) -> bool:
        """Whether an event may name the page; publishing names a row alone.

        Pages of the host (None) are not noted, and any may be named.
        """
        return space_idx is None or _has(self.named[space_idx], page)

    def takes_page(self, space_idx: int | None, page: int) -> bool:
        """Whether an event may take the page from the free list; as `names_page` else."""
        return space_idx is None or _has(self.taken[space_idx], page)

    def names_row(self, row: int) -> bool:
        """Whether an event may name the row."""
        return _has(self.rows, row)

    def names_request(self, rid: str) -> bool:
        """Whether an event may name the request by its id; most name the row it holds."""
        return _has_id(self.requests, rid)

    def names_session(self, session_id: str) -> bool:
        """Whether an event may name the session by its id."""
        return _has_id(self.sessions, session_id)


def _has(bits: bytes, number: int) -> bool:
    byte = number >> 3
    return byte < len(bits) and bool(bits[byte] >> (number & 7) & 1)


def _has_id(checksums: bytes, text: str) -> bool:
    return bool((np.frombuffer(checksums, "<u4") == zlib.crc32(text.encode())).any())


def write_names(path: Path, head_crc: int, stretches: Sequence[StretchNames]) -> int:
    """Write the file of a segment whose head has this crc; returns its bytes, 0 for no file."""
    raw = b"".join(piece for stretch in stretches for piece in _pieces(stretch))
    if len(raw) > MAX_NAMES_BYTES:
        return 0
    stream = Compressor()
    stored = stream.feed(raw) + stream.finish()
    head = _HEAD.pack(
        NAMES_MAGIC, NAMES_VERSION, 0, head_crc, len(raw), len(stored), zlib.crc32(raw)
    )
    content = head + _NUMBER.pack(zlib.crc32(head)) + stored
    path.write_bytes(content)
    return len(content)


def _pieces(stretch: StretchNames) -> list[bytes]:
    pieces = [_SEQ.pack(stretch.first_seq), bytes((len(stretch.named),))]
    for named, taken in zip(stretch.named, stretch.taken, strict=True):
        pieces += [_NUMBER.pack(len(named)), named, taken]
    pieces += [_NUMBER.pack(len(stretch.rows)), stretch.rows]
    for checksums in (stretch.requests, stretch.sessions):
        pieces += [_NUMBER.pack(len(checksums) // 4), checksums]
    return pieces


@attrs.frozen
class LogStretch:
    """A part of a log at whose beginning reading can begin; `names` is None where not known."""

    first_seq: int
    names: StretchNames | None


def read_names(path: Path, head: SegmentHead, num_spaces: int) -> list[StretchNames] | None:
    """The names of the segment with this head; None where no file of it can be read."""
    try:
        with path.open("rb") as file:
            start = file.read(_HEAD_BYTES)
            raw = _content(start, head.crc, file.read(_stored_bytes(start, file.fileno())), path)
        stretches = _Reader(raw).stretches(num_spaces)
    except (OSError, BadBytes):
        return None
    return stretches if stretches and stretches[0].first_seq == head.first_seq else None


def _stored_bytes(head: bytes, fd: int) -> int:
    if len(head) < _HEAD_BYTES:
        raise BadBytes("ends within its head")
    stored_bytes: int = _HEAD.unpack_from(head)[5]
    return min(stored_bytes, os.fstat(fd).st_size)


def _content(head: bytes, head_crc: int, stored: bytes, path: Path) -> bytes:
    magic, version, _, segment_crc, raw_bytes, stored_bytes, raw_crc = _HEAD.unpack_from(head)
    if magic != NAMES_MAGIC or _NUMBER.unpack_from(head, _HEAD.size)[0] != zlib.crc32(
        head[: _HEAD.size]
    ):
        raise BadBytes("no file of names")
    if version != NAMES_VERSION or segment_crc != head_crc:
        raise BadBytes("of another version, or of another segment")
    if raw_bytes > MAX_NAMES_BYTES or len(stored) != stored_bytes:
        raise BadBytes("too large, or cut")
    try:
        raw = decompress(stored, raw_bytes, str(path))
    except LogCorrupt as error:
        raise BadBytes(str(error)) from error
    if zlib.crc32(raw) != raw_crc:
        raise BadBytes("damaged")
    return raw


class _Reader:
    """Takes a content apart; every length is held against what is there."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._pos = 0

    def stretches(self, num_spaces: int) -> list[StretchNames]:
        found: list[StretchNames] = []
        while self._pos < len(self._raw):
            (first_seq,) = _SEQ.unpack(self._take(_SEQ.size))
            if self._take(1)[0] != num_spaces or (found and first_seq <= found[-1].first_seq):
                raise BadBytes("a stretch out of order, or of other pools")
            pages = []
            for _ in range(num_spaces):
                num_bytes = self._number()
                pages.append((self._take(num_bytes), self._take(num_bytes)))
            found.append(
                StretchNames(
                    first_seq=first_seq,
                    named=tuple(named for named, _ in pages),
                    taken=tuple(taken for _, taken in pages),
                    rows=self._take(self._number()),
                    requests=self._take(4 * self._number()),
                    sessions=self._take(4 * self._number()),
                )
            )
        return found

    def _number(self) -> int:
        number: int = _NUMBER.unpack(self._take(_NUMBER.size))[0]
        return number

    def _take(self, num_bytes: int) -> bytes:
        if num_bytes > len(self._raw) - self._pos:
            raise BadBytes("ends in the middle of a field")
        self._pos += num_bytes
        return self._raw[self._pos - num_bytes : self._pos]
