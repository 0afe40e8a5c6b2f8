"""`LogWriter`: what `append` has returned from survives the death of the process."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs

from kvlife.config import compile_layout
from kvlife.errors import ConfigError, LogError, LogInUse
from kvlife.events import Event
from kvlife.log.active import ActiveRun
from kvlife.log.claim import claim_run, is_live, remove_run
from kvlife.log.files import HEADER_NAME
from kvlife.log.header import RunHeader, decode_header, encode_header
from kvlife.log.options import WriterOptions
from kvlife.log.retention import Retention
from kvlife.log.snapshot_file import StateSnapshot

DEFAULT_SEGMENT_BYTES = 16 << 20
DEFAULT_SNAPSHOT_EVERY_BYTES = 4 << 20


class LogWriter:
    """Writes runs under `path`; nothing touches the disk before `start`.

    `sync`: "none" survives the death of the process, "group" that of the machine (each append waits
    for the disk), a number does so every so many milliseconds. `on_full`: "stop" raises `LogFull`,
    "gap" goes on and counts what is missing until a snapshot can be written. `snapshot_every_bytes`
    is the least distance of snapshots, in bytes of events. `compress` applies to sealed segments.
    `clock_ns` gives the header its time of creation.

    One thread writes; a forked child may not.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        retention: Retention | None = None,
        sync: str | float = "none",
        on_full: str = "stop",
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        snapshot_every_bytes: int = DEFAULT_SNAPSHOT_EVERY_BYTES,
        compress: bool = True,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._root = Path(path)
        self._options = WriterOptions(
            retention=retention or Retention(),
            sync=sync,
            on_full=on_full,
            segment_bytes=segment_bytes,
            snapshot_every_bytes=snapshot_every_bytes,
            compress=compress,
        )
        self._sync_each = sync == "group"
        self._clock_ns = clock_ns
        self._run: ActiveRun | None = None

    def start(self, header: RunHeader) -> Path:
        """Make a new run, and return its directory; raises `LogError` where that cannot be."""
        return self.start_at(header, 0)

    def start_at(self, header: RunHeader, first_seq: int) -> Path:
        """As `start`, for a run whose history begins later, with a snapshot."""
        run = self._run
        if run is not None and run.is_open and not run.forked:
            raise LogInUse(f"{run.path}: this writer is writing it: close it first")
        if self._root.joinpath(HEADER_NAME).exists():
            busy = "another writer holds it" if is_live(self._root) else "it has ended"
            raise LogInUse(
                f"{self._root}: is one run, and {busy}; a run is never written again:"
                " name the folder above it"
            )
        layout = compile_layout(header.config)
        if header.created_ns is None:
            header = attrs.evolve(header, created_ns=self._clock_ns())
        content = encode_header(header)
        try:
            # What cannot be read again is not worth writing.
            decode_header(content, "the header of the run")
        except LogError as error:
            raise ConfigError(str(error)) from error
        path, lock = claim_run(self._root)
        try:
            self._run = ActiveRun(path, lock, content, layout, self._options, first_seq)
        except BaseException:
            remove_run(path)
            os.close(lock)
            raise
        _RUNS.add(self._run)
        return path

    def append(self, seq: int, step: int, time_ns: int, events: Sequence[Event]) -> None:
        """Write one group, whole or not at all; when it returns the group is in the log.

        `seq` is that of the first event. Raises `LogFull` where there is no space (unless gaps are
        allowed), `EventError` for an event that cannot be written; then the log is as it was.
        """
        run = self._run
        if run is None:
            raise LogError(f"{self._root}: the log is not started: call start first")
        if run.unfinished:
            run.recover()
        run.unfinished = True
        body = None
        if len(events) == 1:
            event = events[0]
            quick = run.encoder.quick.get(type(event))
            if quick is not None:
                body = quick(event)
        if body is None or not run.tape.put(event.CODE, body, seq, 1, step, time_ns):
            run.append_slowly(seq, step, time_ns, events, body)
        if self._sync_each:
            run.tape.file.sync()
        run.unfinished = False

    def snapshot(self, snapshot: StateSnapshot) -> None:
        """Hand over the state after everything appended; it is frozen and written in background.

        Nothing happens where the last one is still being written. Raises `LogError` where its seq
        is not the next one. It is released in any case.
        """
        if self._run is None:
            snapshot.release()
            raise LogError(f"{self._root}: the log is not started: call start first")
        self._run.snapshot(snapshot)

    def skip(self, num: int) -> None:
        """Count so many events as missing, as a full disk would; a snapshot must follow."""
        if self._run is None:
            raise LogError(f"{self._root}: the log is not started: call start first")
        self._run.skip(num)

    def wait(self) -> None:
        """Wait until the log's own thread has done all it was asked for, the last snapshot too."""
        if self._run is not None:
            self._run.wait()

    def close(self, digest: int | None = None) -> None:
        """Write the end mark with the final state's digest, seal, and finish all work.

        Closing twice, before the start, or in a forked child does nothing.
        """
        run = self._run
        if run is None or run.forked or not run.is_open:
            return
        if run.unfinished:
            run.recover()
        run.close(digest)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def wants_snapshot(self) -> bool:
        """Whether `snapshot` should be called now."""
        return self._run is not None and self._run.wants_snapshot

    @property
    def next_seq(self) -> int:
        """The seq that the next group must begin with."""
        return 0 if self._run is None else self._run.next_seq

    @property
    def num_events(self) -> int:
        """Events in the log, those in gaps not counted."""
        first_seq = 0 if self._run is None else self._run.first_seq
        return self.next_seq - first_seq - self.gap_events

    @property
    def num_gaps(self) -> int:
        """How often a full disk kept events out of the log."""
        return 0 if self._run is None else self._run.num_gaps

    @property
    def gap_events(self) -> int:
        """How many events a full disk kept out of the log."""
        return 0 if self._run is None else self._run.gap_events

    @property
    def log_bytes(self) -> int:
        """Bytes appended so far, before compression."""
        return 0 if self._run is None else self._run.log_bytes

    @property
    def disk_bytes(self) -> int:
        """Bytes on the disk now, reserved space of the segment in use included."""
        return 0 if self._run is None else self._run.thread.inventory.disk_bytes

    @property
    def problems(self) -> tuple[str, ...]:
        """What the log's own thread met: a snapshot not written, a segment not compressed."""
        return () if self._run is None else tuple(self._run.thread.problems)


_RUNS: weakref.WeakSet[ActiveRun] = weakref.WeakSet()


def _leave_to_parent() -> None:
    for run in list(_RUNS):
        if run.is_open and not run.forked:
            run.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)
