"""Reading a run: `open_run` and `LogRun`. Reading never writes."""

from __future__ import annotations

import os
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from kvlife.config import Layout, compile_layout
from kvlife.errors import LogCorrupt, LogError, LogTruncated, LogVersionError
from kvlife.events import Recorded, Violated
from kvlife.ledger import FrozenState
from kvlife.log.claim import is_live
from kvlife.log.cursor import BadBytes
from kvlife.log.decode import Decoder, widest
from kvlife.log.files import (
    HEADER_NAME,
    SegmentFile,
    list_run,
    names_path,
    snapshot_path,
)
from kvlife.log.header import RunHeader, decode_header, read_header
from kvlife.log.locate import locate_run
from kvlife.log.names import LogStretch, read_names
from kvlife.log.packed import PackNote, UnpackedRun, is_pack
from kvlife.log.segment_file import SegmentHead, UnreadableHead, read_segment, read_segment_head
from kvlife.log.snapshot_file import read_head, read_snapshot
from kvlife.log.stretch import Position, Stretch
from kvlife.log.tail import (
    Gap,
    Tail,
    damage_of,
    holds_records,
    missing_segments,
    scan_tail,
    warning_of_end,
    without_advice,
)

_TRIES = 5


@attrs.frozen(kw_only=True)
class Skipped:
    """Events [first_seq, next_seq) that salvage could not read; `next_seq` None: up to the end."""

    first_seq: int
    next_seq: int | None
    reason: str


def open_run(path: str | os.PathLike[str], *, salvage: bool = False) -> LogRun:
    """Open a run directory, the newest run of a log's root, or a pack.

    Newer runs without a header, of engines that were killed while they started, are left out, and
    named in `left_out`. A run that another process is writing is read up to where it had come on
    opening. With `salvage`, what cannot be read is skipped up to the next snapshot, and listed.
    Raises `LogCorrupt`, `LogTruncated`, `LogVersionError`, or `LogError` where there is no run.
    """
    located = locate_run(Path(path))
    run = LogRun(located.path, salvage=salvage)
    run.left_out = located.left_out
    return run


class LogRun:
    """One run, open for reading: `open_run` makes it.

    `begins_at`: the seq from which events can be replayed. `next_seq`: one past the last event.
    `closed`: the writer's end mark, or None. `gaps`: what a full disk kept out of the log.
    `snapshots`: the seqs of the states that lie in it. `unknown`: how many events of each unknown
    code were read so far. `skipped`: what salvage had to leave out so far. `live`: whether a writer
    is at work. `folder` is where its files lie: `path`, or what a pack was unpacked to, and `pack`
    what a pack says of itself. `left_out`: newer runs of the folder, without a header.
    """

    def __init__(self, path: str | os.PathLike[str], *, salvage: bool = False) -> None:
        self.path = self.folder = Path(path)
        self.pack: PackNote | None = None
        if is_pack(self.path):
            self._unpacked = UnpackedRun(self.path)
            self.folder, self.pack = self._unpacked.folder, self._unpacked.note
        self.salvage = salvage
        self.left_out: tuple[Path, ...] = ()
        self.live = is_live(self.folder)
        content = read_header(self.folder / HEADER_NAME)
        self.header: RunHeader = decode_header(content, str(self.folder / HEADER_NAME))
        self.layout = compile_layout(self.header.config)
        self._header_crc = zlib.crc32(content)
        self.unknown: dict[int, int] = {}
        self.skipped: list[Skipped] = []
        self._counted_to = 0
        self._warnings: list[str] = []
        self._files: list[SegmentFile] = []
        self._heads: list[SegmentHead | None] = []
        self.snapshots: list[int] = []
        self._tail = tail = self._open_files()
        self.next_seq = tail.next_seq
        self.closed = tail.closed
        self.gaps = self._gaps(tail)
        first_seq = self._files[0].first_seq if self._files else 0
        self.snapshots = [seq for seq in self.snapshots if first_seq <= seq <= self.next_seq]
        self.begins_at = self._beginning()
        self._check_count()

    @property
    def warnings(self) -> list[str]:
        """What a reader should know: a tear, unknown kinds of events, history without a start."""
        unknown = [
            f"{num} events of the unknown kind {code}: written by a newer kvlife"
            for code, num in sorted(self.unknown.items())
        ]
        return [*(() if self.pack is None else self.pack.told), *self._warnings, *unknown]

    def events(self, start: int | None = None, stop: int | None = None) -> Iterator[Recorded]:
        """The events with seq in [start, stop), by default all from `begins_at`.

        Raises `LogCorrupt` where the log is damaged; with salvage the seqs jump instead, to a
        snapshot's, and `skipped` says over what.
        """
        low = self._low(start)
        high = self.next_seq if stop is None else min(stop, self.next_seq)
        for group in self._groups(low, high, None):
            if group[0].seq >= low and group[-1].seq < high:
                yield from group
            else:
                yield from (recorded for recorded in group if low <= recorded.seq < high)

    def event(self, seq: int) -> Recorded | None:
        """The event of a seq; None where the log does not have it. Raises as `events`."""
        return next(iter(self.events(seq, seq + 1)), None)

    def violated(self) -> Violated | None:
        """The mark of the violation that ended the run: the last event, in a group of its own."""
        kind, mark = self._tail.last_kind, self._tail.mark
        events: Sequence[object] = ()
        if kind == Violated.CODE:
            events = Decoder(self.layout).group(kind, mark, 0, len(mark))
        elif kind is None and self.next_seq:
            # The last segment has no event yet, or is damaged.
            events = [item.event for group in self.groups(self.next_seq - 1) for item in group]
        return next((event for event in events if isinstance(event, Violated)), None)

    def groups(
        self, start: int | None = None, stop: int | None = None, *, layout: Layout | None = None
    ) -> Iterator[list[Recorded]]:
        """The groups that begin in [start, stop), as `events` else.

        `layout` is that of the pools at `start`, which may have been resized before. Where it is
        not known, and behind what salvage or a gap leaves out, page ids are held to no bound.
        """
        low = self._low(start)
        high = self.next_seq if stop is None else min(stop, self.next_seq)
        for group in self._groups(low, high, layout):
            if group[0].seq >= low:
                yield group

    def snapshot(self, seq: int) -> FrozenState:
        """The state after all events below `seq`; `seq` must be one of `snapshots`."""
        if seq not in self.snapshots:
            known = ", ".join(map(str, self.snapshots)) or "none"
            raise LogError(f"{self.path}: no snapshot of seq {seq}; there are {known}")
        path = snapshot_path(self.folder, seq)
        try:
            head, state = read_snapshot(path, self.layout)
        except OSError as error:
            raise LogError(f"{path}: cannot be read ({error.strerror})") from error
        if head.seq != seq or head.header_crc != self._header_crc:
            raise LogCorrupt(f"{path}: is the snapshot of seq {head.seq}, or of another run")
        return state

    def snapshot_before(self, seq: int) -> int | None:
        """The newest snapshot at or below `seq`; None where only the empty state is."""
        place = bisect_right(self.snapshots, seq)
        return self.snapshots[place - 1] if place else None

    def stretches(self) -> Iterator[LogStretch]:
        """The log from its segments' beginnings and snapshots on, with what each stretch names."""
        for file, head in zip(self._files, self._heads, strict=True):
            named = None
            if head is not None:
                path = names_path(self.folder, file.idx, file.first_seq)
                named = read_names(path, head, len(self.layout.spaces))
            if named is None:
                yield LogStretch(file.first_seq, None)
            else:
                yield from (LogStretch(names.first_seq, names) for names in named)

    def load_segment(self, file: SegmentFile) -> tuple[SegmentHead, bytes]:
        """Head and content of a segment, even where the writer compressed it meanwhile."""
        try:
            return read_segment(file, self._header_crc)
        except FileNotFoundError:
            pass
        for other in list_run(self.folder)[0]:
            if other.idx == file.idx:
                return read_segment(other, self._header_crc)
        raise LogError(f"{file.path}: is gone: the writer's retention removed it meanwhile")

    def _open_files(self) -> Tail:
        for left in range(_TRIES - 1, -1, -1):
            try:
                self._files, self.snapshots = list_run(self.folder)
                lost = self._drop_unreadable_end()
                self._heads = [self._head(file) for file in self._files]
                return self._scan_tail(follower_lost=lost)
            except FileNotFoundError as error:
                # The writer compressed or removed a segment between the listing and the reading.
                if not left:
                    raise LogError(f"{self.path}: its files keep changing: try again") from error
            except (LogCorrupt, LogTruncated):
                # A file that is written while it is read may show a later record before an earlier.
                if not left or not self.live:
                    raise
        raise AssertionError

    def _drop_unreadable_end(self) -> bool:
        """Drop a last segment without head and records: a power loss may leave one."""
        if not self._files or self._files[-1].packed:
            return False
        file = self._files[-1]
        try:
            read_segment_head(file, self._header_crc)
        except UnreadableHead as error:
            if holds_records(file):
                if self.salvage:
                    return False
                raise
            self._files.pop()
            self._warnings = [f"{file.path.name}: a segment was dropped ({error})"]
            return True
        return False

    def _head(self, file: SegmentFile) -> SegmentHead | None:
        try:
            return read_segment_head(file, self._header_crc)
        except LogVersionError:
            raise
        except LogError:
            if not self.salvage:
                raise
            return None

    def _scan_tail(self, *, follower_lost: bool) -> Tail:
        for before, file in zip(self._files, self._files[1:], strict=False):
            if file.idx != before.idx + 1 and not self.salvage:
                raise LogTruncated(
                    f"{self.path}: segment {before.idx + 1} is missing:"
                    " use --salvage to go on from the next snapshot"
                )
        if not self._files:
            missing = None if follower_lost else missing_segments(self.folder)
            if missing is not None and not self.salvage:
                raise missing
            empty = "no segment: the run ended before its first event"
            self._warnings.append(str(missing or empty))
            return Tail(0)
        file = self._files[-1]
        try:
            head, content = read_segment(file, self._header_crc)
            tail = scan_tail(head, content)
        except LogVersionError:
            raise
        except LogError as error:
            trouble = _placed(file, error)
            if not self.salvage:
                raise trouble from error
            self._warnings.append(f"{trouble}; its events, from seq {file.first_seq}, are lost")
            return Tail(file.first_seq)
        damage = damage_of(file, tail, follower_lost=follower_lost)
        if damage is not None:
            if not self.salvage:
                raise damage
            self._warnings.append(without_advice(damage))
        warning = None if self.live else warning_of_end(file, head, tail, len(content))
        if warning is not None:
            self._warnings.append(warning)
        return tail

    def _gaps(self, tail: Tail) -> list[Gap]:
        heads = [head for head in self._heads if head is not None]
        between = [
            Gap(first_seq=head.after_seq, next_seq=head.first_seq)
            for head in heads
            if head.after_seq < head.first_seq
        ]
        return between + tail.gaps

    def _beginning(self) -> int:
        if not self._files:
            return 0
        first = self._files[0]
        if first.idx == 0:
            return first.first_seq
        if self.snapshots:
            return self.snapshots[0]
        self._warnings.append(
            f"history begins at seq {first.first_seq} without a snapshot:"
            " its events can be shown, not replayed"
        )
        return first.first_seq

    def _check_count(self) -> None:
        """The end mark's count against what is there, where history is whole."""
        if self.closed is None or self.salvage or not self._files or self._files[0].idx:
            return
        there = self.next_seq - sum(gap.next_seq - gap.first_seq for gap in self.gaps)
        if self.closed.num_events != there:
            raise LogCorrupt(
                f"{self.path}: the end mark counts {self.closed.num_events} events, {there} are"
                " there"
            )

    def _low(self, start: int | None) -> int:
        if start is None:
            return self.begins_at
        first = min(self.begins_at, self._files[0].first_seq if self._files else 0)
        if start < first:
            raise LogError(f"{self.path}: seq {start} is gone, history begins at {self.begins_at}")
        return start

    def _groups(self, low: int, high: int, layout: Layout | None) -> Iterator[list[Recorded]]:
        if low >= high:
            return
        position: Position | None = self._position(low)
        if position == Position(place=0, offset=0, seq=0):
            layout = self.layout
        while position is not None:
            pools = layout or widest(self.layout)
            stretch = Stretch(pools, self.load_segment, self._files, self._count_unknown)
            try:
                yield from stretch.groups(position, high)
                return
            except LogVersionError:
                raise
            except LogError as error:
                if not self.salvage:
                    raise
                position, layout = self._resume(max(stretch.seq, low), without_advice(error)), None

    def _count_unknown(self, seq: int, codes: list[int]) -> None:
        # An event that is read again is not counted again.
        if seq >= self._counted_to:
            self._counted_to = seq + 1
            for code in codes:
                self.unknown[code] = self.unknown.get(code, 0) + 1

    def _position(self, seq: int) -> Position:
        """The last place before `seq` where reading can begin: a segment or a snapshot in it."""
        place = bisect_right([file.first_seq for file in self._files], seq) - 1
        place = max(place, 0)
        known = self.snapshot_before(seq)
        if known is not None and known >= self._files[place].first_seq:
            try:
                return self._position_of(known)
            except LogError:
                # The segment's beginning serves as well; the snapshot's own reader will complain.
                pass
        return Position(place=place, offset=0, seq=self._files[place].first_seq)

    def _position_of(self, seq: int) -> Position:
        try:
            head = read_head(snapshot_path(self.folder, seq))
        except OSError as error:
            raise LogError(f"{snapshot_path(self.folder, seq)}: {error.strerror}") from error
        for place, file in enumerate(self._files):
            if file.idx == head.segment_idx and head.seq == seq:
                return Position(place=place, offset=head.offset, seq=seq)
        raise LogCorrupt(f"{snapshot_path(self.folder, seq)}: its segment is not here")

    def _resume(self, seq: int, reason: str) -> Position | None:
        """Where salvage goes on behind `seq`: at the next snapshot that can be read."""
        for known in self.snapshots:
            if known <= seq:
                continue
            try:
                self.snapshot(known)
                position = self._position_of(known)
            except LogError as error:
                reason = f"{reason}; {error}"
                continue
            self.skipped.append(Skipped(first_seq=seq, next_seq=known, reason=reason))
            return position
        self.skipped.append(Skipped(first_seq=seq, next_seq=None, reason=reason))
        return None


def _placed(file: SegmentFile, error: LogError) -> LogError:
    """The error with its file, where it does not say it yet."""
    return LogCorrupt(f"{file.path}: {error}") if isinstance(error, BadBytes) else error
