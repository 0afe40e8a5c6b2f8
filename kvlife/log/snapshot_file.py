"""Snapshots as files: named arrays, bytes and a digest, compressed, under one checksum."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

import attrs
import msgspec
import numpy as np

from kvlife.config import Layout, ledger_bytes
from kvlife.errors import LogCorrupt, LogFull, LogTruncated, LogVersionError
from kvlife.ledger import FrozenState
from kvlife.log.columns import (
    AnyArray,
    Column,
    check_size,
    describe,
    pieces,
    read_column,
    unfolded_bytes,
)
from kvlife.log.weighing import check_values
from kvlife.log.wire import CRC, SNAPSHOT_HEAD, SNAPSHOT_MAGIC, SNAPSHOT_VERSION
from kvlife.log.zstd import Compressor, decompress

_COMPRESSED = 1
_PLAIN_VERSION = 1  # of a snapshot whose columns are all plain
_HEAD_BYTES = SNAPSHOT_HEAD.size + CRC.size
# Columns take more memory than the bytes that name them. A table has 1.3 KB for one cache group,
# and 38 KB for 64.
_MAX_TABLE_BYTES = 1 << 20


class Frozen(Protocol):
    """A state as arrays, bytes and digest; `kvlife.ledger.FrozenState` is one."""

    @property
    def arrays(self) -> Mapping[str, AnyArray]:
        """The columns."""

    @property
    def meta(self) -> bytes:
        """What is no array."""

    @property
    def digest(self) -> int:
        """64 bits, equal for equal states."""


class StateSnapshot(Protocol):
    """What a ledger hands to a log: cheap to take, and frozen on the log's own thread."""

    @property
    def seq(self) -> int:
        """The state after all events with a lower seq."""

    def freeze(self) -> Frozen:
        """The live entries, and the digest."""

    def release(self) -> None:
        """Give its buffers back."""


@attrs.frozen(kw_only=True)
class SnapshotHead:
    """What stands before a snapshot's content; segment and offset say where its record lies."""

    flags: int
    header_crc: int
    seq: int
    segment_idx: int
    offset: int
    digest: int
    raw_bytes: int
    stored_bytes: int
    raw_crc: int


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    arrays: list[Column]
    meta_bytes: int


def max_raw_bytes(layout: Layout) -> int:
    """What a compressed snapshot may hold; a larger one is stored as it is."""
    return (64 << 20) + 4 * ledger_bytes(layout)


def max_values(layout: Layout) -> int:
    """How many values the books may hold: each takes up to a hundred bytes once it is read."""
    num_pages = layout.host_pages + sum(space.num_pages for space in layout.spaces)
    return (1 << 20) + 2 * num_pages + 32 * layout.num_rows


def write_snapshot(
    file: BinaryIO,
    frozen: Frozen,
    head: SnapshotHead,
    layout: Layout,
    *,
    tick: Callable[[], None],
    room_bytes: int | None = None,
) -> int:
    """Write a snapshot from the file's beginning; returns its bytes before compression.

    `tick` is called between pieces, so that the thread can see to other duties. Raises `LogFull`
    where the file would pass `room_bytes`.
    """
    columns = _columns(frozen, max_raw_bytes(layout))
    table = _table(columns, frozen)
    raw_bytes = len(table) + sum(column.num_bytes for column in columns) + len(frozen.meta)
    flags = _COMPRESSED if raw_bytes <= max_raw_bytes(layout) else 0
    stream = Compressor()
    crc = stored = 0
    file.seek(_HEAD_BYTES)
    for piece in _pieces(frozen, columns, table):
        crc = zlib.crc32(piece, crc)
        ready = stream.feed(piece) if flags else piece
        stored += _write(file, ready, room_bytes)
        tick()
    if flags:
        stored += _write(file, stream.finish(), room_bytes)
    whole = attrs.evolve(
        head, flags=flags, raw_bytes=raw_bytes, stored_bytes=stored, raw_crc=crc,
        digest=frozen.digest,
    )  # fmt: skip
    plain = all(column.coding == "plain" for column in columns)
    version = _PLAIN_VERSION if plain else SNAPSHOT_VERSION
    content = SNAPSHOT_HEAD.pack(SNAPSHOT_MAGIC, version, *attrs.astuple(whole))
    file.seek(0)
    file.write(content + CRC.pack(zlib.crc32(content)))
    file.flush()
    os.fsync(file.fileno())
    return raw_bytes


def _write(file: BinaryIO, piece: bytes | memoryview, room_bytes: int | None) -> int:
    if room_bytes is not None and file.tell() + len(piece) > room_bytes:
        raise LogFull(f"a snapshot of more than {room_bytes} bytes: give the ring more bytes")
    return file.write(piece)


def _columns(frozen: Frozen, limit: int) -> list[Column]:
    """How each array is to stand; more than `limit` bytes stand as they are."""
    columns = [describe(name, array) for name, array in frozen.arrays.items()]
    if unfolded_bytes(columns) > limit:
        columns = [Column(name=it.name, dtype=it.dtype, shape=it.shape) for it in columns]
    return columns


def _table(columns: list[Column], frozen: Frozen) -> bytes:
    table = msgspec.json.encode(_Table(arrays=columns, meta_bytes=len(frozen.meta)))
    return CRC.pack(len(table)) + table


def _pieces(frozen: Frozen, columns: list[Column], table: bytes) -> Iterator[bytes | memoryview]:
    yield table
    for column in columns:
        yield from pieces(column, np.ascontiguousarray(frozen.arrays[column.name]))
    yield frozen.meta


def read_head(path: Path) -> SnapshotHead:
    """The head of a snapshot file."""
    with path.open("rb") as file:
        return _parse_head(file.read(_HEAD_BYTES), str(path))


def _parse_head(content: bytes, where: str) -> SnapshotHead:
    if len(content) < _HEAD_BYTES:
        raise LogTruncated(f"{where}: {len(content)} bytes, shorter than a snapshot's head")
    magic, version, *fields = SNAPSHOT_HEAD.unpack_from(content)
    if magic != SNAPSHOT_MAGIC:
        raise LogCorrupt(f"{where}: no snapshot of kvlife")
    if CRC.unpack_from(content, SNAPSHOT_HEAD.size)[0] != zlib.crc32(content[: SNAPSHOT_HEAD.size]):
        raise LogCorrupt(f"{where}: the head's checksum does not fit")
    if version > SNAPSHOT_VERSION:
        raise LogVersionError(f"{where}: format {version}, this kvlife reads {SNAPSHOT_VERSION}")
    names = [field.name for field in attrs.fields(SnapshotHead)]
    return SnapshotHead(**dict(zip(names, fields, strict=True)))


def read_snapshot(path: Path, layout: Layout) -> tuple[SnapshotHead, FrozenState]:
    """A snapshot file's content; raises `LogCorrupt` or `LogTruncated` naming the file."""
    where = str(path)
    with path.open("rb") as file:
        head = _parse_head(file.read(_HEAD_BYTES), where)
        size = os.fstat(file.fileno()).st_size
        if head.stored_bytes > size - _HEAD_BYTES:
            raise LogTruncated(f"{where}: {size} bytes, the head names {head.stored_bytes} more")
        raw = file.read(head.stored_bytes)
    if head.flags & _COMPRESSED:
        if head.raw_bytes > max_raw_bytes(layout):
            raise LogCorrupt(f"{where}: {head.raw_bytes} bytes claimed, too many for this pool")
        raw = decompress(raw, head.raw_bytes, where)
    if zlib.crc32(raw) != head.raw_crc:
        raise LogCorrupt(f"{where}: the content's checksum does not fit")
    state = _parse(raw, head.digest, max_raw_bytes(layout), where)
    check_values(state.meta, max_values(layout), where)
    return head, state


def _parse(raw: bytes, digest: int, limit: int, where: str) -> FrozenState:
    table_bytes = CRC.unpack_from(raw)[0] if len(raw) >= 4 else 0
    if table_bytes > _MAX_TABLE_BYTES:
        raise LogCorrupt(f"{where}: the table of columns has {table_bytes} bytes, too many")
    pos = 4 + table_bytes
    try:
        table = msgspec.json.decode(raw[4:pos], type=_Table)
        check_size(table.arrays, limit, where)
        arrays = {}
        for column in table.arrays:
            if np.dtype(column.dtype).kind not in "biuf" or column.num_bytes > len(raw) - pos:
                raise LogCorrupt(f"{where}: column {column.name!r} has no such content")
            arrays[column.name] = read_column(column, raw, pos)
            pos += column.num_bytes
    except (msgspec.DecodeError, TypeError, ValueError, OverflowError) as error:
        raise LogCorrupt(f"{where}: the table of columns is damaged ({error})") from error
    meta = raw[pos:]
    if len(meta) != table.meta_bytes:
        raise LogCorrupt(f"{where}: {len(meta)} bytes behind the columns, not {table.meta_bytes}")
    return FrozenState(arrays, meta, digest)
