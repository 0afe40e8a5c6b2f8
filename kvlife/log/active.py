"""A run while it is written: where groups go, when segments change, what a full disk means."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path

from kvlife.config import Layout
from kvlife.errors import LogError, LogInUse
from kvlife.events import Event
from kvlife.log.background import LogThread, sync_directory
from kvlife.log.claim import write_header
from kvlife.log.encode import Encoder
from kvlife.log.files import segment_path
from kvlife.log.notes import GatheredNames
from kvlife.log.options import WriterOptions
from kvlife.log.pace import SnapshotPace
from kvlife.log.retention import KeptSegment
from kvlife.log.segment import MappedFile, SegmentLink, Tape, record_bytes
from kvlife.log.snapshot_file import SnapshotHead, StateSnapshot
from kvlife.log.wire import (
    BATCH,
    CLOSE,
    CLOSE_BODY,
    FOOT_BYTES,
    GAP,
    RESET,
    SEAL,
    SEGMENT_HEAD_BYTES,
    SEQ,
    SEQS,
    SNAPSHOT,
)

# Notes of names are handed over after so many bytes of events, so that they stay few.
_NOTED_BYTES = 1 << 20
# What a segment holds beside the group it was made for: head, foot, and a gap and a snapshot.
_BESIDE_BYTES = SEGMENT_HEAD_BYTES + FOOT_BYTES + 2 * record_bytes(bytes(SEQS.size))


class ActiveRun:
    """Writes one run. `tape` and `encoder` are for the hot path, which ends in `append_slowly`.

    `lock` is the locked run directory. A run that begins at another seq than 0 has no segment 0, as
    if its first segments had been let go. The constructor leaves the files it made behind when it
    raises; whoever made the directory removes them.
    """

    def __init__(
        self,
        path: Path,
        lock: int,
        header: bytes,
        layout: Layout,
        options: WriterOptions,
        first_seq: int = 0,
    ) -> None:
        self.path = path
        self.lock = lock
        self.wants_snapshot = False
        self.num_gaps = 0
        self.gap_events = 0
        self.first_seq = first_seq
        self.unfinished = False
        self.is_open = True
        self.forked = False
        self._header_crc = zlib.crc32(header)
        self._may_gap = options.on_full == "gap"
        self._durable = options.durable
        self._file_bytes = options.file_bytes
        self._pace = SnapshotPace(options.snapshot_distance_bytes, options.events_per_snapshot_byte)
        self._sealed_bytes = 0
        self._exhausted = False
        self._woken = False
        self._layout = layout
        self._notes_due = 0
        # In a gap: the seq of the next event that is missing.
        self._missing_seq: int | None = None
        self._gap_retry_at = 0
        self._pid = os.getpid()
        write_header(path, header)
        self.thread = LogThread(path, layout, options)
        self.thread.start()
        self.encoder = Encoder(layout)
        before = SegmentLink(last_crc=0, header_crc=self._header_crc, step=0, time_ns=0)
        file = self.thread.take_spare(self._file_bytes)
        self.tape, self._kept, self._names = self._take_up(
            file, int(first_seq > 0), first_seq, first_seq, before
        )
        self.thread.prepare_spare()
        if self._durable:
            sync_directory(path)
        self._settle()

    @property
    def next_seq(self) -> int:
        """The seq that the next group must begin with."""
        return self.tape.state[2] if self._missing_seq is None else self._missing_seq

    @property
    def log_bytes(self) -> int:
        """Bytes appended so far, before compression."""
        return self._sealed_bytes + self.tape.state[0]

    def append_slowly(
        self, seq: int, step: int, time_ns: int, events: Sequence[Event], body: bytes | None
    ) -> None:
        """Append what the hot path could not; `body` is what it encoded, if it did."""
        self.require_open()
        if seq != self.next_seq:
            raise LogError(f"{self.path}: seq {seq} appended, the next one is {self.next_seq}")
        if not events:
            return
        if self._missing_seq is not None:
            self._count_missing(len(events))
            return
        if body is None:
            kind, body = self.encoder.group(events)
        else:
            kind = events[0].CODE
        if not self._place(kind, body, seq, len(events), step, time_ns):
            try:
                self._rotate(record_bytes(body), seq)
            except LogError:
                if not self._may_gap:
                    raise
                self._begin_gap(len(events))
                return
            kind, body = self.encoder.group(events)
            if not self._place(kind, body, seq, len(events), step, time_ns):
                raise LogError(f"{self.path}: a group outgrew the segment made for it")
        self._settle()

    def snapshot(self, snapshot: StateSnapshot) -> None:
        """As `LogWriter.snapshot`."""
        handed_over = False
        try:
            self.require_open()
            seq = self.next_seq
            if snapshot.seq != seq:
                raise LogError(f"{self.path}: a snapshot of seq {snapshot.seq}, next is {seq}")
            offset = self._put_snapshot_record(seq)
            if offset is not None:
                self._hand_over(snapshot, seq, offset)
                handed_over = True
        finally:
            if not handed_over:
                snapshot.release()

    def skip(self, num: int) -> None:
        """As `LogWriter.skip`."""
        self.require_open()
        if self._missing_seq is None:
            self._begin_gap(num)
        else:
            self._count_missing(num)

    def wait(self) -> None:
        """As `LogWriter.wait`."""
        self.require_open()
        self.thread.wait()
        self._settle()

    def recover(self) -> None:
        """Begin a new stretch after an append that did not come to its end.

        The encoder may have taken up what is not on the tape, and bytes may lie behind the end.
        """
        self.require_open()
        self.encoder.reset()
        if self._missing_seq is None:
            self.tape.file.wipe(self.tape.state[0])
            if self.tape.put_control(RESET, b"", self.tape.capacity) is None:
                self.tape.limit = 0
                self._exhausted = True
        self.unfinished = False

    def close(self, digest: int | None) -> None:
        """Write the end mark, seal, and finish all work."""
        self.is_open = False
        tape, next_seq = self.tape, self.next_seq
        num_events = tape.state[2] - tape.first_seq
        end = tape.file.num_bytes
        if self._missing_seq is not None:
            tape.put_control(GAP, SEQS.pack(tape.state[2], next_seq), end, next_seq)
            self._missing_seq = None
        whole = CLOSE_BODY.pack(
            next_seq - self.first_seq - self.gap_events, next_seq, digest is not None, digest or 0
        )
        tape.put_control(CLOSE, whole, end)
        tape.limit = 0
        self._seal(tape, self._kept, self._names, num_events)
        self.thread.stop()
        if self._durable:
            sync_directory(self.path)
        os.close(self.lock)

    def leave_to_parent(self) -> None:
        """In a forked child: the mapping is the parent's, and a write would go into its log."""
        self.forked = True
        self.tape.limit = 0
        os.close(self.lock)

    def require_open(self) -> None:
        """Raise `LogInUse` in a forked child, `LogError` on a closed run."""
        if self.forked or os.getpid() != self._pid:
            raise LogInUse(f"{self.path}: belongs to the parent process: start a log of your own")
        if not self.is_open:
            raise LogError(f"{self.path}: the log is closed: nothing can be written")

    def _place(self, kind: int, body: bytes, seq: int, num: int, step: int, time_ns: int) -> bool:
        """Write a group behind the definitions it needs, where there is room for all of them."""
        tape = self.tape
        need = record_bytes(body) + sum(map(record_bytes, self.encoder.definitions))
        if self._exhausted or tape.state[0] + need > tape.capacity:
            return False
        for definition in self.encoder.take_definitions():
            tape.put_surely(BATCH, definition, seq, 0, *tape.state[3:])
        tape.put_surely(kind, body, seq, num, step, time_ns)
        return True

    def _rotate(self, need_bytes: int, first_seq: int) -> None:
        """Go on in a new segment with room for a group; raises `LogError` and changes nothing.

        The new segment gets its name before the old one is sealed: a sealed segment that no other
        follows has lost it.
        """
        old, old_kept, old_names = self.tape, self._kept, self._names
        need_bytes += sum(map(record_bytes, self.encoder.definitions)) + _BESIDE_BYTES
        file = self.thread.take_spare(max(need_bytes, self._file_bytes))
        try:
            self.tape, self._kept, self._names = self._take_up(
                file, old.idx + 1, first_seq, old.state[2], old.link(self._header_crc)
            )
        except LogError:
            file.discard()
            raise
        self._exhausted = False
        self.encoder.reset()
        self.thread.prepare_spare()
        self._seal(old, old_kept, old_names, old.state[2] - old.first_seq)

    def _take_up(
        self, file: MappedFile, idx: int, first_seq: int, after_seq: int, before: SegmentLink
    ) -> tuple[Tape, KeptSegment, GatheredNames]:
        tape = Tape(file, idx, first_seq, after_seq, before)
        if first_seq != after_seq:
            tape.put_control(GAP, SEQS.pack(after_seq, first_seq), tape.capacity)
        file.rename(segment_path(self.path, idx, first_seq))
        kept = KeptSegment(file.path, idx, file.num_bytes)
        self.thread.inventory.add_segment(kept)
        self.thread.active = tape
        self._notes_due = 0
        return tape, kept, GatheredNames(self._layout, first_seq)

    def _seal(self, tape: Tape, kept: KeptSegment, names: GatheredNames, num_events: int) -> None:
        tape.put_control(SEAL, SEQS.pack(num_events, tape.state[2]), tape.file.num_bytes)
        self._sealed_bytes += tape.state[0]
        self._hand_over_notes(names)
        self.thread.seal(tape, kept, names)

    def _settle(self) -> None:
        """Say up to where `put` may write without being asked, and whether a snapshot is due."""
        tape = self.tape
        if tape.state[0] >= self._notes_due:
            self._hand_over_notes(self._names)
            self._notes_due = tape.state[0] + _NOTED_BYTES
        while True:
            self._woken = False
            tape.limit = min(tape.capacity, self._notes_due)
            due_in = self._pace.due_in(self.log_bytes)
            self.wants_snapshot = due_in is not None and due_in <= 0
            if due_in is not None and due_in > 0:
                tape.limit = min(tape.limit, tape.state[0] + due_in)
            # The log's thread sets `woken` first and the limit last, so that neither is missed.
            if not self._woken:
                return

    def _put_snapshot_record(self, seq: int) -> int | None:
        """The record's offset; None where the last snapshot is not done, or there is no space."""
        if self._pace.busy:
            return None
        self.encoder.reset()
        body = SEQ.pack(seq)
        if self._missing_seq is None:
            offset = self.tape.put_control(SNAPSHOT, body, self.tape.capacity)
            if offset is not None:
                self._hand_over_notes(self._names, seq)
                return offset
        try:
            self._rotate(0, seq)
        except LogError:
            # The encoder has forgotten what the tape still builds on.
            self.unfinished = True
            self._pace.put_off(self.log_bytes)
            self._gap_retry_at = 2 * self.gap_events + 16
            self.wants_snapshot = False
            return None
        self._missing_seq = None
        return self.tape.put_control(SNAPSHOT, body, self.tape.capacity)

    def _hand_over_notes(self, names: GatheredNames, next_seq: int | None = None) -> None:
        """Have the log's thread take the notes up; a stretch begins at `next_seq`."""
        # In this order a signal handler's exception may have notes taken up twice, but never lost.
        self.thread.note(names, self.encoder.notes, next_seq)
        self.encoder.handed_over()

    def _hand_over(self, snapshot: StateSnapshot, seq: int, offset: int) -> None:
        self._pace.begin(self.log_bytes)
        head = SnapshotHead(
            flags=0,
            header_crc=self._header_crc,
            seq=seq,
            segment_idx=self.tape.idx,
            offset=offset,
            digest=0,
            raw_bytes=0,
            stored_bytes=0,
            raw_crc=0,
        )
        self.thread.snapshot(snapshot, head, self.tape.state[4], self._snapshot_done)
        self._settle()

    def _snapshot_done(self, raw_bytes: int | None) -> None:
        # On the log's thread: the next append is asked to look at what is due now.
        self._pace.done(raw_bytes, self.log_bytes)
        self._woken = True
        self.tape.limit = 0

    def _begin_gap(self, num: int) -> None:
        self.num_gaps += 1
        self._missing_seq = self.tape.state[2]
        self._gap_retry_at = 0
        self.tape.limit = 0
        self._count_missing(num)

    def _count_missing(self, num: int) -> None:
        self._missing_seq = self.next_seq + num
        self.gap_events += num
        self.wants_snapshot = self.gap_events >= self._gap_retry_at and not self._pace.busy
