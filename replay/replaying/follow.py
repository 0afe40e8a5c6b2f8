"""One part of a log, followed: groups are folded, snapshots compared, holes stepped over."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from kvlife.errors import EventError, LogCorrupt, LogError
from kvlife.events import Recorded, Violated
from kvlife.invariants import Checker
from kvlife.ledger import FrozenState, Ledger
from kvlife.log import LogRun
from kvlife.log.files import snapshot_path
from kvlife.log.tail import without_advice
from kvlife.replay.replaying.fold import Fold
from kvlife.replay.replaying.known import refuse_unknown, restored
from kvlife.replay.replaying.outcome import Checked, Difference, Hole, PartOutcome
from kvlife.replay.replaying.parts import Part

Group = list[Recorded]

_WITHOUT_SNAPSHOT = "use --salvage to replay the events without this snapshot"
_REMOVED = "its writer's retention has removed it since: try again"

# The caller hears of the progress after this many groups.
GROUPS_PER_REPORT = 512


class Watch(Protocol):
    """Somebody who looks on while a log is replayed, and changes nothing."""

    def before(self, group: Sequence[Recorded], ledger: Ledger) -> None:
        """A group is about to be folded into this state."""

    def end(self, ledger: Ledger) -> None:
        """The replay ends in this state."""


class Follower:
    """Replays one part of a run; what it found is its `outcome`.

    `advance` is called with the number of events since its last call, and `watch` is told of each
    group that is folded. With `salvage`, what does not fit is left out up to the next snapshot. The
    result depends on the log and the part alone: where a state differs from the snapshot at its
    seq, the replay goes on from the snapshot's.
    """

    def __init__(
        self,
        run: LogRun,
        part: Part,
        checker: Checker,
        *,
        salvage: bool = False,
        advance: Callable[[int], None] = lambda _num: None,
        watch: Watch | None = None,
    ) -> None:
        self.run = run
        self.part = part
        self.checker = checker
        self.salvage = salvage
        self.advance = advance
        self.watch = watch
        self._holes: list[Hole] = []
        self._differences: list[Difference] = []
        self._notes: list[str] = []
        self._num_snapshots = 0
        self._lost = ""
        self._at_end = False
        self._step = 0
        self._reported = 0
        self._marks = deque(seq for seq in run.snapshots if part.start < seq <= part.stop)
        declared = frozenset(run.header.policies)
        self._fold = Fold(self._ledger_at(part.start), checker, declared)
        self._next_seq = part.start
        self._next_mark = self._marks[0] if self._marks else part.stop

    def follow(self) -> PartOutcome:
        """Replay the part; raises `LogError` or `EventError` for a log that cannot be followed."""
        groups = self.run.groups(self.part.start, layout=self._fold.ledger.layout)
        for number, (group, following) in enumerate(_with_next(groups)):
            if group[0].seq >= self.part.stop:
                break
            if number % GROUPS_PER_REPORT == 0:
                self._report()
            if self._take(group, following):
                self._see_what_follows(following, groups)
                break
        self._finish()
        self._report()
        if self.watch is not None:
            self.watch.end(self._fold.ledger)
        return self._outcome()

    def _take(self, group: Group, following: Group | None) -> bool:
        """Fold a group if the state before it is known; True where the run ends in it."""
        fold, first = self._fold, group[0].seq
        # Behind what is lost the seqs do not go on, so that this holds for it too.
        if first != self._next_seq or first >= self._next_mark:
            self._meet(first)
            if self._lost:
                return False
        if group[-1].seq >= self.part.stop:
            group = [item for item in group if item.seq < self.part.stop]
        self._step = group[-1].step
        if isinstance(group[0].event, Violated) and self._ends_alone(group, following):
            return True
        try:
            if self.run.unknown:
                refuse_unknown(group)
            if self.watch is not None:
                self.watch.before(group, fold.ledger)
            goes_on = fold.group(
                group,
                recorded_end(group, following),
                went_on=following is not None or self.run.closed is not None,
            )
        except EventError as error:
            if not self.salvage:
                raise
            self._lose(without_advice(error))
            return False
        self._next_seq = fold.ledger.next_seq
        return not goes_on

    def _ends_alone(self, group: Group, following: Group | None) -> bool:
        """A recorded violation whose event was not in the group before it."""
        recorded = group[0].event
        assert isinstance(recorded, Violated)  # the caller looked
        if len(group) > 1 or following is not None:
            return False
        self._fold.ended_by(recorded, group[0].step)
        return True

    def _see_what_follows(self, following: Group | None, groups: Iterator[Group]) -> None:
        """Behind the end of a run stands the record of its violation, and nothing else."""
        if self._fold.stopped:
            if following is not None and _is_violated(following):
                recorded = following[0].event
                self._notes.append(f"the run itself recorded {recorded}")
            elif following is not None:
                self._notes.append(
                    f"the run itself went on to seq {self.run.next_seq - 1};"
                    " --collect replays all of it"
                )
            return
        rest = next(groups, None) if following is not None else None
        self._at_end = rest is None
        if rest is not None:
            text = f"events from seq {rest[0].seq} on follow the violation that ended the run"
            self._differences.append(Difference(kind="events", seq=rest[0].seq, text=text))

    def _meet(self, first: int) -> None:
        """Compare or take up the snapshots up to the event `first`, which comes next."""
        while self._marks and self._marks[0] <= first:
            mark = self._marks.popleft()
            if not self._lost and mark == self._next_seq:
                self._compare(mark)
            elif mark == first:
                self._restart(mark)
            elif mark < self._next_seq:
                self._refuse(f"the snapshot of seq {mark} lies inside a group of events")
        self._next_mark = self._marks[0] if self._marks else self.part.stop
        if not self._lost and first != self._next_seq:
            self._refuse(
                f"events [{self._next_seq}, {first}) are missing, and no snapshot follows them"
            )
            self._lose(self._why_missing())

    def _refuse(self, problem: str) -> None:
        if not self.salvage:
            raise LogCorrupt(f"{self.run.path}: {problem}: use --salvage to leave out what is lost")
        self._notes.append(problem)

    def _lose(self, why: str) -> None:
        self._lost = why
        self._next_seq = self._fold.ledger.next_seq

    def _compare(self, mark: int) -> None:
        state = self._snapshot(mark)
        if state is None:
            return
        digest = self._fold.ledger.digest()
        if digest == state.digest:
            self._num_snapshots += 1
            return
        text = (
            f"the state before seq {mark} has the digest {digest:016x}, the snapshot"
            f" {state.digest:016x}: the replay goes on from the snapshot"
        )
        self._differences.append(Difference(kind="snapshot", seq=mark, text=text))
        self._fold.start_from(restored(self.run, state, mark))

    def _restart(self, mark: int) -> None:
        """Go on behind a hole."""
        state = self._snapshot(mark)
        if state is None:
            self._lost = self._lost or self._why_missing()
            return
        why = self._lost or self._why_missing()
        self._holes.append(Hole(first_seq=self._next_seq, next_seq=mark, why=why))
        self._fold.start_from(restored(self.run, state, mark))
        self._next_seq, self._lost = mark, ""

    def _snapshot(self, mark: int) -> FrozenState | None:
        try:
            return self.run.snapshot(mark)
        except LogError as error:
            if not self.salvage:
                raise type(error)(f"{error}: {_way_out(self.run, mark)}") from error
            self._notes.append(str(error))
            return None

    def _ledger_at(self, seq: int) -> Ledger:
        if seq == 0:
            return Ledger(self.run.header.config)
        try:
            return restored(self.run, self.run.snapshot(seq), seq)
        except LogError as error:
            if self.salvage:
                raise
            raise type(error)(f"{error}: {_way_out(self.run, seq)}") from error

    def _why_missing(self) -> str:
        seq = self._next_seq
        for gap in self.run.gaps:
            if gap.first_seq <= seq < gap.next_seq:
                return "the disk was full: a gap that the writer counted"
        for skipped in self.run.skipped:
            if skipped.next_seq is None or skipped.first_seq <= seq < skipped.next_seq:
                return skipped.reason
        return "not in the log"

    def _finish(self) -> None:
        """What is due where the part ends: the snapshot there, and at the log's end an audit."""
        fold = self._fold
        if fold.ended:
            return
        if not self._lost and self._next_seq < self.part.stop:
            self._lose(self._why_missing())
        while self._marks and not self._lost:
            mark = self._marks.popleft()
            if mark == self._next_seq:
                self._compare(mark)
        if self.part.last and not self._lost:
            self._at_end = self._next_seq == self.run.next_seq
            if self.checker.level != "off":
                fold.audit(self._step, went_on=self.run.closed is not None)

    def _report(self) -> None:
        done = self._fold.num_events
        self.advance(done - self._reported)
        self._reported = done

    def _outcome(self) -> PartOutcome:
        fold, stats = self._fold, self.checker.stats
        digest = fold.digest
        if digest is None and (self.part.last or fold.ended):
            digest = fold.ledger.digest()
        return PartOutcome(
            first_seq=self.part.start,
            next_seq=self._next_seq if self._lost else fold.ledger.next_seq,
            num_events=fold.num_events,
            found=tuple(fold.found),
            num_found=dict(stats.violations),
            checked=Checked(
                events=stats.events, rows=stats.rows, pages=stats.pages, audits=stats.audits
            ),
            num_snapshots=self._num_snapshots,
            differences=(*self._differences, *fold.differences),
            holes=tuple(self._holes),
            notes=(*self._notes, *fold.notes),
            digest=digest,
            ended=fold.ended,
            at_end=self._at_end,
            stopped=fold.stopped,
            lost=self._lost,
        )


def _with_next(groups: Iterator[Group]) -> Iterator[tuple[Group, Group | None]]:
    """Each group with the one behind it."""
    before = next(groups, None)
    while before is not None:
        following = next(groups, None)
        yield before, following
        before = following


def _is_violated(group: Sequence[Recorded]) -> bool:
    return len(group) == 1 and isinstance(group[0].event, Violated)


def recorded_end(group: Group, following: Group | None) -> Violated | None:
    """What the log says was violated in this group, where that ended the run."""
    if following is None or len(following) > 1:
        return None
    recorded = following[0].event
    if type(recorded) is Violated and group[0].seq <= recorded.seq <= group[-1].seq:
        return recorded
    return None


def _way_out(run: LogRun, seq: int) -> str:
    """What to do without the snapshot of this seq."""
    removed = run.live and not snapshot_path(run.folder, seq).exists()
    return _REMOVED if removed else _WITHOUT_SNAPSHOT
