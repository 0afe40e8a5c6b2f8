"""What a replay found, as plain records that pass between processes and into JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from kvlife.invariants import Finding

# So many findings are kept whole; those after them are only counted.
MAX_KEPT = 1000


@attrs.frozen(kw_only=True)
class Found:
    """A violation that the replay found; `event` is the kind of the event, None for an audit.

    `rows` are those for which the event names the pages of the evidence.
    """

    id: str
    sentence: str
    seq: int
    step: int
    event: str | None
    evidence: Mapping[str, object]
    also: Mapping[str, Mapping[str, object]]
    applied: bool
    after_first: bool
    rows: tuple[int, ...] = ()

    @classmethod
    def of(cls, finding: Finding, step: int, *, applied: bool, rows: tuple[int, ...] = ()) -> Found:
        """The plain form of what a checker reports; `applied` is what the replay then did."""
        return cls(
            id=finding.id,
            sentence=finding.sentence,
            seq=finding.seq,
            step=step,
            event=None if finding.event is None else type(finding.event).__name__,
            evidence=dict(finding.evidence),
            also={name: dict(evidence) for name, evidence in finding.also.items()},
            applied=applied,
            after_first=finding.after_first,
            rows=rows,
        )


@attrs.frozen(kw_only=True)
class Difference:
    """Where the log says one thing and the replay another.

    `kind` is snapshot, digest, violation or events; `seq` is where it was seen.
    """

    kind: str
    seq: int
    text: str


@attrs.frozen(kw_only=True)
class Hole:
    """Events [first_seq, next_seq) that were not replayed, and why."""

    first_seq: int
    next_seq: int
    why: str


@attrs.frozen(kw_only=True)
class Checked:
    """How much was checked."""

    events: int = 0
    rows: int = 0
    pages: int = 0
    audits: int = 0

    def __add__(self, other: Checked) -> Checked:
        """Both together."""
        return Checked(
            events=self.events + other.events,
            rows=self.rows + other.rows,
            pages=self.pages + other.pages,
            audits=self.audits + other.audits,
        )


@attrs.frozen(kw_only=True)
class PartOutcome:
    """What the replay of one part of a log found.

    `next_seq` is one past the last event folded. `digest` is that of the state where the part
    ended, None where none was asked for. `ended` says that the run ends in this part: by a
    recorded violation, or by one that stops the replay; `at_end` that the state is that of the end
    of the log, so that its digest must be the recorded one. `lost` is why events at the part's end
    were not replayed.
    """

    first_seq: int
    next_seq: int
    num_events: int
    found: tuple[Found, ...]
    num_found: Mapping[str, int]
    checked: Checked
    num_snapshots: int
    differences: tuple[Difference, ...]
    holes: tuple[Hole, ...]
    notes: tuple[str, ...]
    digest: int | None
    ended: bool
    at_end: bool
    stopped: bool
    lost: str = ""


@attrs.frozen(kw_only=True)
class Outcome:
    """What the replay of a log found; `digest_ok` is None where nothing could be compared.

    `compared` says that the final state was held against the digest of the log's end mark.
    """

    path: str
    first_seq: int
    next_seq: int
    log_next_seq: int
    num_events: int
    found: tuple[Found, ...]
    num_found: Mapping[str, int]
    checked: Checked
    names_off: tuple[str, ...]
    num_snapshots: int
    differences: tuple[Difference, ...]
    holes: tuple[Hole, ...]
    notes: tuple[str, ...]
    digest: int | None
    digest_ok: bool | None
    closed: bool
    live: bool
    compared: bool
    stopped: bool
    lost: str
    jobs: int

    @property
    def unclosed(self) -> str | None:
        """Why the run has no end, in words; None where it has one."""
        if self.closed:
            return None
        if self.live:
            return "the run is not closed: another process is writing it"
        return (
            "the run's end is not here: its process was killed, or it was copied or packed"
            " before its end"
        )

    @property
    def first(self) -> Found | None:
        """The violation that came first."""
        return self.found[0] if self.found else None


def join_parts(parts: Iterable[PartOutcome]) -> PartOutcome:
    """Parts that follow each other as one; what lies behind the end of the run is left out."""
    joined: PartOutcome | None = None
    for part in parts:
        joined = part if joined is None else _join(joined, part)
        if joined.ended:
            break
    if joined is None:
        raise ValueError("a replay has at least one part")
    return attrs.evolve(joined, found=_in_order(joined.found))


def _join(left: PartOutcome, right: PartOutcome) -> PartOutcome:
    counts = Counter(left.num_found)
    counts.update(right.num_found)
    holes = left.holes
    if left.lost and right.first_seq > left.next_seq:
        holes = (*holes, Hole(first_seq=left.next_seq, next_seq=right.first_seq, why=left.lost))
    return attrs.evolve(
        right,
        first_seq=left.first_seq,
        num_events=left.num_events + right.num_events,
        found=(*left.found, *right.found)[:MAX_KEPT],
        num_found=dict(counts),
        checked=left.checked + right.checked,
        num_snapshots=left.num_snapshots + right.num_snapshots,
        differences=left.differences + right.differences,
        holes=holes + right.holes,
        notes=tuple(dict.fromkeys(left.notes + right.notes)),
    )


def _in_order(found: tuple[Found, ...]) -> tuple[Found, ...]:
    """Each part took its own first violation for the first of all."""
    return tuple(attrs.evolve(item, after_first=number > 0) for number, item in enumerate(found))
