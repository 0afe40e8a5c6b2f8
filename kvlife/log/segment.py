"""A segment while it is written: a file whose space is reserved, mapped into memory."""

from __future__ import annotations

import errno
import mmap
import os
import struct
import zlib
from pathlib import Path

import attrs

from kvlife.errors import LogError, LogFull
from kvlife.log.wire import (
    CRC,
    FOOT_BYTES,
    FORMAT_VERSION,
    LONG,
    LONG_HEAD,
    RECORD_HEAD,
    RECORD_REST,
    SEGMENT_HEAD,
    SEGMENT_HEAD_BYTES,
    SEGMENT_MAGIC,
)

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def reserve_space(fd: int, num_bytes: int) -> None:
    """Reserve the file's space on the disk, so that no write into its mapping can fail."""
    os.posix_fallocate(fd, 0, num_bytes)


def log_full(path: Path, asked_bytes: int, error: OSError) -> LogError:
    """The error that a failed reservation or write means."""
    if error.errno in _NO_SPACE:
        return LogFull(
            f"{path}: no space for {asked_bytes} bytes of the log ({error.strerror}):"
            " free some, or give the log a retention"
        )
    return LogError(f"{path}: cannot be written ({error.strerror})")


@attrs.frozen(kw_only=True)
class SegmentLink:
    """How a segment hangs on what came before: the last record there, and the run's header."""

    last_crc: int
    header_crc: int
    step: int
    time_ns: int


class MappedFile:
    """A file of `num_bytes` zeros, reserved and mapped, made where there is none.

    Raises `LogFull`, and leaves nothing then.
    """

    __slots__ = ("fd", "map", "num_bytes", "path")

    def __init__(self, path: Path, num_bytes: int) -> None:
        self.path = path
        self.num_bytes = num_bytes
        try:
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise log_full(path, num_bytes, error) from error
        try:
            reserve_space(self.fd, num_bytes)
            # Pages that were written already cost the engine's thread no wait for the disk's maps.
            self.wipe(0)
            self.map = mmap.mmap(self.fd, num_bytes)
        except OSError as error:
            os.close(self.fd)
            path.unlink(missing_ok=True)
            raise log_full(path, num_bytes, error) from error

    def rename(self, path: Path) -> None:
        """Give the file its name."""
        try:
            self.path.rename(path)
        except OSError as error:
            raise log_full(path, self.num_bytes, error) from error
        self.path = path

    def wipe(self, start: int) -> None:
        """Zero the file from `start` on, in pieces that hold no other thread up."""
        zeros = memoryview(bytes(1 << 16))
        pos = start
        while pos < self.num_bytes:
            pos += os.pwrite(self.fd, zeros[: self.num_bytes - pos], pos)

    def sync(self) -> None:
        """Bring to the disk what was written; Linux does this for mapped pages as well."""
        os.fdatasync(self.fd)

    def discard(self) -> None:
        """Remove a file that was never used."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of mapping and file; the file stays."""
        self.map.close()
        os.close(self.fd)


class Tape:
    """Where records go: the mapped segment, and what the next record is told relative to.

    `limit` is the offset up to which `put` may write. The owner lowers it, to 0 even, to be asked
    first. `state` is (offset, crc of the last record, seq, step, time) of what comes next, in one
    tuple, so that an exception from a signal handler finds either all of it moved or nothing.
    """

    __slots__ = ("_map", "file", "first_seq", "head_crc", "idx", "limit", "state")

    def __init__(
        self, file: MappedFile, idx: int, first_seq: int, after_seq: int, before: SegmentLink
    ) -> None:
        """Write the segment's head; `after_seq` differs from `first_seq` where a gap lies."""
        self.file = file
        self.idx = idx
        self.first_seq = first_seq
        self._map = file.map
        self.limit = 0
        head = SEGMENT_HEAD.pack(
            SEGMENT_MAGIC,
            FORMAT_VERSION,
            SEGMENT_HEAD_BYTES,
            idx,
            first_seq,
            after_seq,
            before.step,
            before.time_ns,
            file.num_bytes,
            before.last_crc,
            before.header_crc,
        )
        self.head_crc = crc = zlib.crc32(head)
        self._map[:SEGMENT_HEAD_BYTES] = head + CRC.pack(crc)
        self.state = (SEGMENT_HEAD_BYTES, crc, first_seq, before.step, before.time_ns)

    @property
    def capacity(self) -> int:
        """Where groups end: behind it is the room of the foot."""
        return self.file.num_bytes - FOOT_BYTES

    def put(  # the hot path
        self, kind: int, body: bytes, seq: int, num: int, step: int, time_ns: int
    ) -> bool:
        """Write a group's record; False where it would pass `limit` or is not the next one."""
        offset, link, next_seq, last_step, last_ns = self.state
        try:
            rest = (
                RECORD_REST.pack(
                    len(body), link & 0xFFFF, kind, step - last_step, time_ns - last_ns
                )
                + body
            )
        except struct.error:
            rest = _long(kind, body, link, step, time_ns)
        end = offset + 4 + len(rest)
        if end > self.limit or seq != next_seq:
            return False
        crc = zlib.crc32(rest)
        self._map[offset:end] = crc.to_bytes(4, "little") + rest
        self.state = (end, crc, seq + num, step, time_ns)
        return True

    def put_surely(
        self, kind: int, body: bytes, seq: int, num: int, step: int, time_ns: int
    ) -> None:
        """Write the next group's record, for which the caller has seen that there is room.

        Another thread may lower `limit` at any moment, to have the owner asked.
        """
        assert seq == self.state[2]
        assert self.state[0] + record_bytes(body) <= self.capacity
        while not self.put(kind, body, seq, num, step, time_ns):
            self.limit = self.capacity

    def put_control(
        self, kind: int, body: bytes, end_at: int, next_seq: int | None = None
    ) -> int | None:
        """Write a record of the log's own with a long head, and return its offset.

        It must end at `end_at` or before; else nothing is written, and None returned.
        """
        offset, link, seq, step, time_ns = self.state
        rest = _long(kind, body, link, step, time_ns)
        end = offset + 4 + len(rest)
        if end > end_at:
            return None
        crc = zlib.crc32(rest)
        self._map[offset:end] = crc.to_bytes(4, "little") + rest
        self.state = (end, crc, seq if next_seq is None else next_seq, step, time_ns)
        return offset

    def link(self, header_crc: int) -> SegmentLink:
        """What the next segment says of this one."""
        return SegmentLink(
            last_crc=self.state[1],
            header_crc=header_crc,
            step=self.state[3],
            time_ns=self.state[4],
        )


def _long(kind: int, body: bytes, link: int, step: int, time_ns: int) -> bytes:
    return (
        RECORD_REST.pack(0, link & 0xFFFF, kind | LONG, 0, 0)
        + LONG_HEAD.pack(len(body), step, time_ns)
        + body
    )


def record_bytes(body: bytes) -> int:
    """The most bytes that a record with this body takes."""
    return RECORD_HEAD.size + LONG_HEAD.size + len(body)
