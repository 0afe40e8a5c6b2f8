"""The outcome of an import for people, in lines, and for machines, as one JSON object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from kvlife.capture import Contradiction, ImportOutcome, StreamOutcome
from kvlife.replay.output.columns import Line, counted
from kvlife.replay.output.finding_words import finding_json, finding_lines, unchecked_lines

MAX_LISTED = 10


def import_as_json(outcome: ImportOutcome, seconds: float) -> dict[str, object]:
    """The object of `kvlife import vllm --json`; the digest is 16 hexadecimal digits."""
    checked = outcome.stats.checked
    return {
        "engine": f"{outcome.header.engine} {outcome.header.version}",
        "workload": outcome.header.workload,
        "lines": outcome.num_lines,
        "calls": dict(outcome.num_calls),
        "whole": outcome.whole,
        "clean": outcome.clean,
        "events": outcome.stats.events,
        "snapshots": outcome.num_snapshots,
        "statements": outcome.num_compared,
        "violations": [finding_json(finding) for finding in outcome.violations],
        "num_violations": outcome.num_violations,
        "contradictions": [attrs.asdict(item) for item in outcome.contradictions],
        "num_contradictions": outcome.num_contradictions,
        "checked": checked["events"],
        "checked_rows": checked["rows"],
        "checked_pages": checked["pages"],
        "audits": outcome.num_audits,
        "not_checked": list(outcome.stats.not_checked),
        "not_proven": list(outcome.not_proven),
        "digest": f"{outcome.digest:016x}",
        "seconds": round(seconds, 3),
    }


def stream_as_json(outcome: StreamOutcome, seconds: float) -> dict[str, object]:
    """The object of `kvlife import kv-events --json`."""
    return {
        "engine": outcome.header.source,
        "format": outcome.header.format,
        "workload": outcome.header.workload,
        "messages": outcome.num_messages,
        "events": dict(outcome.num_events),
        "clean": outcome.clean,
        "hashes": outcome.num_hashes,
        "copies": outcome.num_copies,
        "recomputed": outcome.num_recomputed,
        "unproven_parents": outcome.num_unproven_parents,
        "contradictions": [attrs.asdict(item) for item in outcome.contradictions],
        "num_contradictions": outcome.num_contradictions,
        "not_proven": list(outcome.not_proven),
        "seconds": round(seconds, 3),
    }


def import_lines(outcome: ImportOutcome, seconds: float, log: Path | None) -> Iterator[Line]:
    """What was imported, what was checked, and what was found."""
    header, checked = outcome.header, outcome.stats.checked
    yield "bold", f"{header.engine} {header.version}, workload {header.workload}"
    lines, events = counted(outcome.num_lines, "line"), counted(outcome.stats.events, "event")
    yield "", f"{lines}, {events}, {seconds:.1f} s"
    if log is not None:
        yield "", f"log: {log}"
    yield (
        "",
        (
            f"checked {counted(checked['events'], 'event')}, {counted(checked['rows'], 'row')},"
            f" {counted(checked['pages'], 'page')}, {counted(outcome.num_audits, 'audit')}"
        ),
    )
    yield (
        "",
        (
            f"compared {counted(outcome.num_compared, 'statement')} of the capture, and"
            f" {counted(outcome.num_snapshots, 'snapshot')} in full"
        ),
    )
    yield from unchecked_lines("not checked: ", outcome.stats.not_checked)
    for line in outcome.not_proven:
        yield "dim", f"not proven: {line}"
    for finding in outcome.violations[:MAX_LISTED]:
        yield from finding_lines(finding)
    if outcome.num_violations > MAX_LISTED:
        yield "red", f"and {counted(outcome.num_violations - MAX_LISTED, 'more violation')}"
    yield from _contradictions(outcome.contradictions, outcome.num_contradictions)
    if outcome.clean:
        yield "green", "no violation, and the capture agrees with itself and with the log"
    elif log is not None and outcome.violations:
        yield "", f"which event was wrong, and why: kvlife replay {log}"


def _contradictions(contradictions: Iterable[Contradiction], num_found: int) -> Iterator[Line]:
    shown = list(contradictions)[:MAX_LISTED]
    for item in shown:
        yield "bold red", f"contradiction: {item}"
    if num_found > len(shown):
        yield "red", f"and {num_found - len(shown):,} more"


def stream_lines(outcome: StreamOutcome, seconds: float) -> Iterator[Line]:
    """What the stream held, what it proves, and what it cannot."""
    header = outcome.header
    workload = f", workload {header.workload}" if header.workload else ""
    yield "bold", f"{header.source}{workload}"
    kinds = ", ".join(f"{num:,} {kind}" for kind, num in sorted(outcome.num_events.items()))
    yield "", f"{counted(outcome.num_messages, 'message')}: {kinds or 'no event'}; {seconds:.1f} s"
    yield (
        "",
        (
            f"at the end {counted(outcome.num_hashes, 'hash stands', 'hashes stand')} on"
            f" {counted(outcome.num_copies, 'block')};"
            f" {counted(outcome.num_recomputed, 'hash was', 'hashes were')} computed again from"
            " their tokens"
        ),
    )
    yield from _contradictions(outcome.contradictions, outcome.num_contradictions)
    if not outcome.num_messages:
        yield "bold yellow", "no message: this stream proves nothing"
    elif outcome.clean:
        yield "green", "nothing is proven wrong"
    for line in outcome.not_proven:
        yield "dim", f"cannot be proven by this stream: {line}"
