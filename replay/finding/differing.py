"""Two runs compared: what their headers say, where their events part, and the states around that.

`rank-agreement`: the ranks of one group write the same events, in every field but the time and the
digests of contents, since each rank holds other heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from kvlife.errors import ConfigError, EventError, LogError
from kvlife.ledger import Ledger
from kvlife.log import LogRun, RunHeader
from kvlife.replay.finding.matching import Matched, Matcher
from kvlife.replay.finding.sameness import Ignored
from kvlife.replay.finding.state_difference import StateDifference, difference_of
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.output.event_words import FieldDifference, field_differences
from kvlife.replay.output.run_notes import run_notes
from kvlife.replay.replaying.known import known_states

Advance = Callable[[int], None]

# What the ranks of a group hold differently.
_OF_RANK = "Digested.digests"


@attrs.frozen(kw_only=True)
class HeaderDifference:
    """A field that two headers have differently; `counts` where it should be the same."""

    field: str
    left: str
    right: str
    counts: bool


@attrs.frozen(kw_only=True)
class Comparison:
    """Two runs compared from seq `start` on.

    `fields` are those in which the two events differ, for each place where the logs part.
    `at_start`, `before`, `after` and `at_end` say how the states differ there; None where that was
    not asked or is not known, for which `notes` has the reason.
    """

    left: LogRun
    right: LogRun
    start: int
    headers: tuple[HeaderDifference, ...]
    matched: Matched
    fields: tuple[tuple[FieldDifference, ...], ...] = ()
    at_start: StateDifference | None = None
    before: StateDifference | None = None
    after: StateDifference | None = None
    at_end: StateDifference | None = None
    notes: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether anything that should be the same is not."""
        apart = self.at_start is not None and not self.at_start.is_empty
        return bool(
            self.matched.num_partings or apart or any(found.counts for found in self.headers)
        )


def compare_runs(
    left: LogRun, right: LogRun, ignored: Ignored, advance: Advance = lambda _num: None
) -> Comparison:
    """Hold one run against another.

    Raises `ConfigError` where they have no events of the same seqs, and the reader's error where a
    log cannot be read on before a difference was found.
    """
    start = _start_of_both(left, right)
    if _are_ranks(left.header, right.header):
        ignored = attrs.evolve(ignored, fields=ignored.fields | {_OF_RANK})
    states = _States(left, right)
    at_start = states.apart(start, start) if start else None
    matcher = Matcher(left, right, start, ignored, advance)
    matched = matcher.match()
    notes = list(_notes(matcher))
    before = after = at_end = None
    if matched.partings:
        first = matched.partings[0]
        before, after, at_end = (
            states.apart(*seqs)
            for seqs in (
                (first.left_seqs[0], first.right_seqs[0]),
                (first.left_seqs[1], first.right_seqs[1]),
                (left.next_seq, right.next_seq),
            )
        )
    for stream in (matcher.left, matcher.right):
        if stream.trouble is not None and not matched.partings:
            raise stream.trouble
    return Comparison(
        left=left,
        right=right,
        start=start,
        headers=tuple(header_differences(left.header, right.header)),
        matched=matched,
        fields=tuple(
            ()
            if each.left is None or each.right is None
            else tuple(field_differences(each.left, each.right, left.layout, ignored.fields))
            for each in matched.partings
        ),
        at_start=at_start,
        before=before,
        after=after,
        at_end=at_end,
        notes=(*notes, *states.notes),
    )


def _start_of_both(left: LogRun, right: LogRun) -> int:
    """The first seq that both logs have, and know the state before where they know any."""
    starts = [(known_states(run) or [run.begins_at])[0] for run in (left, right)]
    start = max(starts)
    for run, other in ((left, right), (right, left)):
        if start and run.next_seq <= start:
            raise ConfigError(
                f"{run.path} ends before seq {run.next_seq}, and {other.path} begins at"
                f" {start}: they have no events of the same seqs"
            )
    return start


class _States:
    """The states of both runs at one seq after another, as far as they are known."""

    def __init__(self, left: LogRun, right: LogRun) -> None:
        self.notes: list[str] = []
        self._runs = (left, right)
        self._timelines: dict[LogRun, Timeline] = {}
        self._last: dict[LogRun, Ledger] = {}

    def apart(self, left_seq: int, right_seq: int) -> StateDifference | None:
        """How the states before these seqs differ."""
        try:
            states = map(self._state, self._runs, (left_seq, right_seq))
            return difference_of(*states)
        except (LogError, EventError, ConfigError) as error:
            note = f"states are not compared everywhere: {error}"
            if note not in self.notes:
                self.notes.append(note)
            return None

    def _state(self, run: LogRun, seq: int) -> Ledger:
        if run not in self._timelines:
            self._timelines[run] = Timeline(run)
        timeline, last = self._timelines[run], self._last.get(run)
        known = run.snapshot_before(min(seq, timeline.last_seq)) or 0
        if last is None or not known <= last.next_seq <= seq:
            self._last[run] = timeline.state(seq)
        else:
            self._last[run] = timeline.onward(last, seq)
        return self._last[run]


def _notes(matcher: Matcher) -> Iterator[str]:
    for stream in (matcher.left, matcher.right):
        run = stream.run
        if run.closed is None and not run.live:
            yield f"{run.path}: was not closed (killed, ended by a violation, or cut)"
        yield from (f"{run.path}: {note}" for note in run_notes(run))
        if stream.trouble is not None:
            yield f"{run.path}: cannot be read further: {stream.trouble}"
    if matcher.left.run.unknown or matcher.right.run.unknown:
        yield "of events of an unknown kind, the kind and the size are compared, and no content"
    for name, low, high in matcher.found.uncompared:
        run = matcher.left.run if name == "left" else matcher.right.run
        yield f"events [{low}, {high}) are missing in {run.path}, and are not compared"


def header_differences(left: RunHeader, right: RunHeader) -> Iterator[HeaderDifference]:
    """What two headers say differently; the time of creation is no difference.

    The ranks of one group may differ in their rank, and in nothing else. Of other runs, pools that
    differ count, and the rest is told.
    """
    ranks = _are_ranks(left, right)
    mine, other = _flat(left), _flat(right)
    for name in dict.fromkeys((*mine, *other)):
        if mine.get(name) == other.get(name) or (ranks and name == "rank"):
            continue
        yield HeaderDifference(
            field=name,
            left=mine.get(name, "not there"),
            right=other.get(name, "not there"),
            counts=ranks or name.startswith("config."),
        )


def _are_ranks(left: RunHeader, right: RunHeader) -> bool:
    return bool(left.group) and left.group == right.group and left.rank != right.rank


def _flat(header: RunHeader) -> dict[str, str]:
    told: dict[str, str] = {}
    for field in attrs.fields(RunHeader):
        value = getattr(header, field.name)
        if field.name == "created_ns":
            continue
        if field.name == "policies":
            told |= {f"policies.{name}": policy for name, policy in value.items()}
        elif field.name == "config":
            for part in attrs.fields(type(value)):
                told[f"config.{part.name}"] = str(getattr(value, part.name))
        else:
            told[field.name] = str(value)
    return told
