"""The log's own thread: it seals, compresses, snapshots, reserves, removes and syncs."""

from __future__ import annotations

import os
import queue
import threading
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kvlife.config import Layout
from kvlife.errors import LogError
from kvlife.log.files import TEMPORARY, names_path, segment_path, snapshot_path
from kvlife.log.names import write_names
from kvlife.log.notes import GatheredNames, Notes
from kvlife.log.options import WriterOptions
from kvlife.log.retention import (
    RING_SEGMENTS,
    RING_SNAPSHOTS,
    Inventory,
    KeptSegment,
    KeptSnapshot,
)
from kvlife.log.segment import MappedFile, Tape, log_full
from kvlife.log.snapshot_file import SnapshotHead, StateSnapshot, write_snapshot
from kvlife.log.wire import CRC, MAX_PACKED_BYTES, PACKED_HEAD, PACKED_MAGIC, SEGMENT_HEAD_BYTES
from kvlife.log.zstd import Compressor

_PIECE = 1 << 20
_MAX_PROBLEMS = 16


class LogThread:
    """Does what may take long, in the order in which it was asked for."""

    def __init__(self, run: Path, layout: Layout, options: WriterOptions) -> None:
        self._run = run
        self._layout = layout
        self._retention = options.retention
        self._file_bytes = options.file_bytes
        self._compress = options.compress
        self._durable = options.durable
        self._pause_ns = options.sync_ns
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._spares: queue.SimpleQueue[MappedFile] = queue.SimpleQueue()
        self._slots: list[Path] = []
        self._num_names = 0
        self._next_sync_ns = 0
        self.inventory = Inventory()
        self.active: Tape | None = None
        self.problems: list[str] = []
        self._thread = threading.Thread(target=self._work, name="kvlife-log", daemon=True)

    def start(self) -> None:
        """Reserve a ring's space, and begin to work; raises `LogFull` where there is too little."""
        ring = self._retention.ring_bytes is not None
        for _ in range(RING_SEGMENTS if ring else 1):
            self._spares.put(MappedFile(self._new_name("spare"), self._file_bytes))
        for _ in range(RING_SNAPSHOTS if ring else 0):
            path = self._new_name("slot")
            MappedFile(path, self._retention.ring_snapshot_bytes).close()
            self._slots.append(path)
        self._thread.start()

    def take_spare(self, num_bytes: int) -> MappedFile:
        """A new segment file: one made ahead where there is one; raises `LogFull`."""
        if self._retention.ring_bytes is not None:
            if num_bytes > self._file_bytes:
                raise LogError(
                    f"a group of {num_bytes} bytes in a ring of segments of {self._file_bytes}:"
                    " give the ring more bytes"
                )
            return self._spares.get(timeout=60)
        if num_bytes <= self._file_bytes:
            try:
                return self._spares.get_nowait()
            except queue.Empty:
                pass
        wanted = max(num_bytes + 4095 & ~4095, self._file_bytes)
        return MappedFile(self._new_name("spare"), wanted)

    def prepare_spare(self) -> None:
        """Have the next segment file made ahead."""
        self._jobs.put(self._recycle if self._retention.ring_bytes else self._make_spare)

    def note(self, names: GatheredNames, notes: Notes, next_seq: int | None) -> None:
        """Have notes taken up among the names of a segment; a ring keeps none."""
        if self._retention.ring_bytes is None:
            self._jobs.put(partial(names.take_up, notes, next_seq))

    def seal(self, tape: Tape, kept: KeptSegment, names: GatheredNames) -> None:
        """Have a finished segment compressed or cut to its size, and old ones removed."""
        self._jobs.put(partial(self._seal, tape, kept, names))

    def snapshot(
        self,
        snapshot: StateSnapshot,
        head: SnapshotHead,
        time_ns: int,
        done: Callable[[int | None], None],
    ) -> None:
        """Have a snapshot written; `done` gets its bytes before compression, None on failure."""
        self._jobs.put(partial(self._snapshot, snapshot, head, time_ns, done))

    def wait(self) -> None:
        """Return once all that was asked for is done."""
        done = threading.Event()
        self._jobs.put(done.set)
        done.wait()

    def stop(self) -> None:
        """Finish all that was asked for, and end; spare files go."""
        self._jobs.put(None)
        self._thread.join()
        while not self._spares.empty():
            self._spares.get().discard()
        for slot in self._slots:
            slot.unlink(missing_ok=True)

    def _work(self) -> None:
        pause_ns = self._pause_ns
        while True:
            try:
                job = self._jobs.get(timeout=None if pause_ns is None else pause_ns / 1e9)
            except queue.Empty:
                self._tick()
                continue
            if job is None:
                return
            try:
                job()
            # The thread must outlive whatever a job meets, and says what it was.
            except Exception as error:  # noqa: BLE001
                self._note(f"{type(error).__name__}: {error}")
            self._tick()

    def _tick(self) -> None:
        pause_ns, tape = self._pause_ns, self.active
        if pause_ns is None or tape is None:
            return
        now_ns = time.monotonic_ns()
        if now_ns >= self._next_sync_ns:
            self._next_sync_ns = now_ns + pause_ns
            try:
                tape.file.sync()
            except (OSError, ValueError) as error:
                self._note(f"{tape.file.path}: not synced ({error})")

    def _note(self, problem: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)

    def _new_name(self, word: str) -> Path:
        self._num_names += 1
        return self._run / f"{word}-{self._num_names:06d}{TEMPORARY}"

    def _make_spare(self) -> None:
        if self._spares.empty():
            self._spares.put(MappedFile(self._new_name("spare"), self._file_bytes))

    def _recycle(self) -> None:
        """Take the oldest segment of a ring as the next spare, under another name, zeroed."""
        while self._spares.empty():
            oldest = self.inventory.oldest(1)
            if oldest is None:
                return
            self._drop_stale_snapshots(RING_SNAPSHOTS)
            path = self._new_name("spare")
            oldest.path.rename(path)
            self._spares.put(MappedFile(path, oldest.num_bytes))

    def _drop_stale_snapshots(self, num_kept: int) -> None:
        for stale in self.inventory.stale_snapshots(num_kept):
            slot = self._new_name("slot")
            stale.path.rename(slot)
            self._slots.append(slot)

    def _seal(self, tape: Tape, kept: KeptSegment, names: GatheredNames) -> None:
        used = tape.state[0]
        try:
            if self._durable:
                tape.file.sync()
            if self._retention.ring_bytes is None:
                if self._compress and used <= MAX_PACKED_BYTES:
                    kept.path, kept.num_bytes = self._pack(tape, used)
                else:
                    os.ftruncate(tape.file.fd, used)
                    kept.num_bytes = used
                kept.num_bytes += self._write_names(tape, names)
        except OSError as error:
            raise log_full(tape.file.path, used, error) from error
        finally:
            tape.file.close()
            kept.last_ns = tape.state[4]
            kept.sealed = True
            self._retain(kept.last_ns)
            if self._retention.ring_bytes is not None:
                self._recycle()

    def _write_names(self, tape: Tape, names: GatheredNames) -> int:
        """Write the names of a segment beside it; they only save reading, so none is no fault."""
        path = names_path(self._run, tape.idx, tape.first_seq)
        beside = path.with_name(path.name + TEMPORARY)
        try:
            num_bytes = 0 if names.lost else write_names(beside, tape.head_crc, names.stretches())
            if num_bytes:
                beside.rename(path)
            return num_bytes
        except OSError as error:
            beside.unlink(missing_ok=True)
            self._note(f"{path}: the names of the segment are not written ({error})")
            return 0

    def _pack(self, tape: Tape, used: int) -> tuple[Path, int]:
        """Write the compressed segment beside the raw one, give it its name, remove the raw one."""
        raw_path = tape.file.path
        path = segment_path(self._run, tape.idx, tape.first_seq, packed=True)
        beside = path.with_name(path.name + TEMPORARY)
        crc = stored = 0
        stream = Compressor()
        try:
            with beside.open("wb") as file, memoryview(tape.file.map) as content:
                file.seek(SEGMENT_HEAD_BYTES + PACKED_HEAD.size + CRC.size)
                for start in range(0, used, _PIECE):
                    with content[start : min(start + _PIECE, used)] as piece:
                        crc = zlib.crc32(piece, crc)
                        stored += file.write(stream.feed(piece))
                    self._tick()
                stored += file.write(stream.finish())
                head = PACKED_HEAD.pack(PACKED_MAGIC, used, stored, crc)
                file.seek(0)
                file.write(content[:SEGMENT_HEAD_BYTES])
                file.write(head + CRC.pack(zlib.crc32(head)))
                file.flush()
                os.fsync(file.fileno())
                num_bytes = os.fstat(file.fileno()).st_size
        except OSError:
            beside.unlink(missing_ok=True)
            raise
        beside.rename(path)
        sync_directory(self._run)
        raw_path.unlink()
        return path, num_bytes

    def _snapshot(
        self,
        snapshot: StateSnapshot,
        head: SnapshotHead,
        time_ns: int,
        done: Callable[[int | None], None],
    ) -> None:
        raw_bytes = None
        try:
            raw_bytes = self._write_snapshot(snapshot, head, time_ns)
        except OSError as error:
            raise log_full(snapshot_path(self._run, head.seq), 0, error) from error
        finally:
            snapshot.release()
            done(raw_bytes)

    def _write_snapshot(self, snapshot: StateSnapshot, head: SnapshotHead, time_ns: int) -> int:
        ring = self._retention.ring_bytes is not None
        path = snapshot_path(self._run, head.seq)
        if ring and not self._slots:
            self._drop_stale_snapshots(RING_SNAPSHOTS - 1)
        beside = self._slots.pop() if ring else path.with_name(path.name + TEMPORARY)
        try:
            with beside.open("r+b" if ring else "wb") as file:
                raw_bytes = write_snapshot(
                    file,
                    snapshot.freeze(),
                    head,
                    self._layout,
                    tick=self._tick,
                    room_bytes=self._retention.ring_snapshot_bytes if ring else None,
                )
                num_bytes = os.fstat(file.fileno()).st_size
            beside.rename(path)
        except BaseException:
            if ring:
                self._slots.append(beside)
            else:
                beside.unlink(missing_ok=True)
            raise
        if self._durable:
            sync_directory(self._run)
        self.inventory.add_snapshot(
            KeptSnapshot(path, head.seq, head.segment_idx, num_bytes, time_ns)
        )
        self._retain(time_ns)
        return raw_bytes

    def _retain(self, now_ns: int) -> None:
        for path in self.inventory.cut(self._retention, now_ns):
            path.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Bring a directory's names to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
