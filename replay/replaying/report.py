"""The outcome of a replay for people, in lines, and for machines, as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from kvlife.replay.history.chain import Chain
from kvlife.replay.output.columns import Line, counted
from kvlife.replay.output.finding_words import unchecked_lines
from kvlife.replay.replaying.outcome import Found, Outcome

# The text lists so many violations after the first; the JSON object has all that were kept.
MAX_LISTED = 10


def as_json(
    outcome: Outcome, chain: Chain | None, commands: Sequence[str], seconds: float
) -> dict[str, object]:
    """The object of `kvlife replay --json`; digests are 16 hexadecimal digits."""
    return {
        "log": outcome.path,
        "events": outcome.num_events,
        "first_seq": outcome.first_seq,
        "next_seq": outcome.next_seq,
        "violations": [_found_as_json(item) for item in outcome.found],
        "num_violations": dict(outcome.num_found),
        "chain": [] if chain is None else [attrs.asdict(link) for link in chain.links],
        "next_commands": list(commands),
        "checked": outcome.checked.events,
        "checked_rows": outcome.checked.rows,
        "checked_pages": outcome.checked.pages,
        "audits": outcome.checked.audits,
        "not_checked": list(outcome.names_off),
        "digest": None if outcome.digest is None else f"{outcome.digest:016x}",
        "digest_ok": outcome.digest_ok,
        "closed": outcome.closed,
        "snapshots": outcome.num_snapshots,
        "differences": [attrs.asdict(difference) for difference in outcome.differences],
        "holes": [attrs.asdict(hole) for hole in outcome.holes],
        "lost": outcome.lost or None,
        "notes": list(outcome.notes),
        "jobs": outcome.jobs,
        "seconds": round(seconds, 3),
        "events_per_second": _rate(outcome, seconds),
    }


def _found_as_json(found: Found) -> dict[str, object]:
    return {
        "id": found.id,
        "seq": found.seq,
        "step": found.step,
        "event": found.event,
        "evidence": dict(found.evidence),
        "also": {name: dict(evidence) for name, evidence in found.also.items()},
        "applied": found.applied,
        "after_first": found.after_first,
    }


def _rate(outcome: Outcome, seconds: float) -> int:
    return round(outcome.num_events / seconds) if seconds > 0 else 0


def report_lines(
    outcome: Outcome, chain: Chain | None, commands: Sequence[str], seconds: float
) -> Iterator[Line]:
    """What was replayed, checked and found, and `commands` that show why."""
    yield "bold", f"replay of {outcome.path}"
    yield "", _what(outcome, seconds)
    yield from _what_is_missing(outcome)
    yield from _what_was_checked(outcome)
    yield _what_was_compared(outcome)
    for difference in outcome.differences:
        yield "bold red", f"difference: {difference.text}"
    if outcome.first is None:
        yield "green", "no violation found"
    else:
        yield from _violations(outcome, outcome.first)
        if chain is not None:
            yield from _chain_lines(chain)
        if commands:
            yield "bold", "what shows why"
        for command in commands:
            yield "", f"  {command}"


def _what(outcome: Outcome, seconds: float) -> str:
    start = "the empty state" if outcome.first_seq == 0 else f"the snapshot of {outcome.first_seq}"
    jobs = f", {counted(outcome.jobs, 'process', 'processes')}" if outcome.jobs > 1 else ""
    return (
        f"replayed    {counted(outcome.num_events, 'event')}, from {start} up to seq"
        f" {outcome.next_seq - 1}, in {seconds:.1f} s ({_rate(outcome, seconds):,} a second{jobs})"
    )


def _what_is_missing(outcome: Outcome) -> Iterator[Line]:
    if outcome.unclosed:
        yield "yellow", f"note        {outcome.unclosed}"
    for hole in outcome.holes:
        seqs = f"seqs {hole.first_seq} to {hole.next_seq - 1}"
        yield "yellow", f"hole        {seqs} were not replayed: {hole.why}"
    if outcome.lost:
        seqs = f"nothing from seq {outcome.next_seq} on"
        yield "yellow", f"hole        {seqs} was replayed: {outcome.lost}"
    for note in outcome.notes:
        yield "yellow", f"note        {note}"


def _what_was_checked(outcome: Outcome) -> Iterator[Line]:
    checked = outcome.checked
    if not checked.events and not checked.audits:
        yield "bold yellow", "checked     NOTHING: this replay shows no more than digests do"
    else:
        counts = (checked.events, checked.rows, checked.pages, checked.audits)
        named = zip(counts, ("event", "row", "page", "audit"), strict=True)
        yield "", "checked     " + ", ".join(counted(count, name) for count, name in named)
    yield from unchecked_lines("not checked ", outcome.names_off)


def _what_was_compared(outcome: Outcome) -> Line:
    digest = "" if outcome.digest is None else f"{outcome.digest:016x}, "
    snapshots = counted(outcome.num_snapshots, "snapshot agrees", "snapshots agree")
    if outcome.digest_ok is None:
        return "", f"digest      {digest}compared with nothing; {snapshots}"
    if not outcome.digest_ok:
        return "bold red", f"digest      {digest}NOT as recorded; {snapshots}"
    recorded = "as recorded" if outcome.compared else "compared with no end mark"
    return "green", f"digest      {digest}{recorded}; {snapshots}"


def _violations(outcome: Outcome, first: Found) -> Iterator[Line]:
    by = "an audit" if first.event is None else first.event
    yield (
        "bold red",
        f"violation   {first.id} at seq {first.seq}, step {first.step}, by {by}",
    )
    yield "", f"            {first.sentence}"
    for name, value in first.evidence.items():
        yield "", f"            {name}: {value}"
    for name in first.also:
        yield "", f"            it breaks {name} too"
    for later in outcome.found[1 : 1 + MAX_LISTED]:
        by = "an audit" if later.event is None else later.event
        yield "red", f"later       {later.id} at seq {later.seq}, by {by}"
    total = sum(outcome.num_found.values())
    if total > 1:
        counts = ", ".join(f"{name} {num}" for name, num in outcome.num_found.items())
        yield "red", f"in all      {total}: {counts}"


def _chain_lines(chain: Chain) -> Iterator[Line]:
    yield "bold", "how it came about"
    if not chain.complete:
        yield "yellow", "  (what lies before is not in the log, or too far back)"
    seqs = max((len(str(link.seq)) for link in chain.links), default=1)
    for link in chain.links[:-1]:
        yield (
            "",
            f"  seq {link.seq:>{seqs}}  step {link.step}  {link.event}: {link.where}: {link.text}",
        )
    last = chain.links[-1]
    yield "red", f"  seq {last.seq:>{seqs}}  step {last.step}  {last.event}: {last.text}"
