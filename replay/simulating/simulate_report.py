"""The outcome of a simulation for people, as a table, and for machines, as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kvlife.replay.output.columns import Line, counted, print_lines
from kvlife.replay.output.finding_words import finding_json, finding_lines, unchecked_lines
from kvlife.simulation import SimulationOutcome


def as_json(outcome: SimulationOutcome) -> dict[str, object]:
    """The object of `kvlife simulate --json`; the digest is 16 hexadecimal digits."""
    tally, stats = outcome.tally, outcome.stats
    return {
        "requests": tally.requests,
        "completed": tally.completed,
        "prompt_tokens": tally.prompt_tokens,
        "hit_tokens": tally.hit_tokens,
        "resumed_hit_tokens": tally.resumed_hit_tokens,
        "session_tokens": tally.session_tokens,
        "prefill_tokens": tally.prefill_tokens,
        "output_tokens": tally.output_tokens,
        "drafted_tokens": tally.drafted_tokens,
        "accepted_tokens": tally.accepted_tokens,
        "evicted_pages": stats.evicted_pages,
        "retractions": tally.retractions,
        "backups": tally.backups,
        "restored_tokens": tally.restored_tokens,
        "aborts": tally.aborts.total(),
        "aborts_by_place": dict(sorted(tally.aborts.items())),
        "sessions": tally.sessions,
        "session_turns": tally.session_turns,
        "session_rewinds": tally.rewinds,
        "sessions_closed": tally.sessions_closed,
        "sessions_closed_for_room": tally.sessions_closed_for_room,
        "steps": tally.steps,
        "peak_pages": tally.peaks,
        "peak_running": tally.peak_running,
        "refusals": dict(stats.refusals),
        "events": stats.events,
        "violations": [finding_json(finding) for finding in outcome.findings],
        "checked": stats.checked["events"],
        "checked_rows": stats.checked["rows"],
        "checked_pages": stats.checked["pages"],
        "audits": outcome.audits,
        "not_checked": list(stats.not_checked),
        "log_bytes": stats.log_bytes,
        "digest": f"{outcome.digest:016x}",
        "virtual_seconds": outcome.virtual_ns / 1e9,
        "seconds": round(outcome.seconds, 3),
        "engine_seconds": round(_engine_seconds(outcome), 3),
        "check_seconds": round(stats.check_ns / 1e9, 3),
        "log_seconds": round(stats.log_ns / 1e9, 3),
    }


def _engine_seconds(outcome: SimulationOutcome) -> float:
    """Time in commands alone; the audit at the very end counts with the checks."""
    rest_ns = outcome.engine_ns - outcome.stats.check_ns - outcome.stats.log_ns
    return max(rest_ns, 0) / 1e9


def print_report(outcome: SimulationOutcome, log: Path | None) -> None:
    """Print the summary, and what was checked and found."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    for name, value, note in _lines(outcome, log):
        table.add_row(name, value, note)
    Console(highlight=False).print(table)
    print_lines(_verdict(outcome))


def _lines(outcome: SimulationOutcome, log: Path | None) -> Iterator[tuple[str, str, str]]:
    yield from _work_lines(outcome)
    yield from _cache_lines(outcome)
    stats = outcome.stats
    per_second = round(stats.events / outcome.seconds) if outcome.seconds > 0 else 0
    yield "events", f"{stats.events:,}", f"{per_second:,} a second"
    if log is not None:
        yield "log bytes", f"{stats.log_bytes:,}", f"before compression, in {log}"
    yield "digest", f"{outcome.digest:016x}", ""
    yield (
        "time",
        f"{outcome.seconds:.1f} s",
        (
            f"{_engine_seconds(outcome):.1f} s in the engine,"
            f" {stats.check_ns / 1e9:.1f} s in checks, {stats.log_ns / 1e9:.1f} s in the log"
        ),
    )


def _work_lines(outcome: SimulationOutcome) -> Iterator[tuple[str, str, str]]:
    tally = outcome.tally
    yield "requests", f"{tally.requests:,}", f"{tally.completed:,} completed"
    yield "steps", f"{tally.steps:,}", f"{outcome.virtual_ns / 1e9:,.1f} s of virtual time"
    rate = tally.hit_tokens / tally.prompt_tokens if tally.prompt_tokens else 0.0
    yield "prompt tokens", f"{tally.prompt_tokens:,}", f"{tally.prefill_tokens:,} computed"
    yield "hit tokens", f"{tally.hit_tokens:,}", f"{rate:.2%} of the prompts"
    yield "output tokens", f"{tally.output_tokens:,}", ""
    if tally.drafted_tokens:
        share = tally.accepted_tokens / tally.drafted_tokens
        yield "drafted tokens", f"{tally.drafted_tokens:,}", f"{share:.1%} accepted"
    places = ", ".join(f"{num} {place}" for place, num in sorted(tally.aborts.items()))
    yield "aborts", f"{tally.aborts.total():,}", places
    yield (
        "sessions",
        f"{tally.sessions:,}",
        (
            f"{counted(tally.session_turns, 'later turn')} kept"
            f" {counted(tally.session_tokens, 'token')}, {tally.rewinds:,} rewound;"
            f" {tally.sessions_closed_for_room:,} closed for room"
        ),
    )


def _cache_lines(outcome: SimulationOutcome) -> Iterator[tuple[str, str, str]]:
    tally = outcome.tally
    yield "evicted pages", f"{outcome.stats.evicted_pages:,}", ""
    yield (
        "retractions",
        f"{tally.retractions:,}",
        f"{counted(tally.resumed_hit_tokens, 'token')} found again",
    )
    if tally.backups:
        restored = f"{counted(tally.restored_tokens, 'token')} restored from the host"
        yield "backups", f"{tally.backups:,}", restored
    yield "peak running", f"{tally.peak_running:,}", "sampled"
    for space, states in tally.peaks.items():
        for state, num in states.items():
            # The host has no cache, and no pin holds its pages.
            if state != "RESERVED" and (num or space != "host"):
                yield f"peak {state}", f"{num:,}", f"pages of space {space}, sampled"


def _verdict(outcome: SimulationOutcome) -> Iterator[Line]:
    checked = outcome.stats.checked
    if not checked["events"] and not outcome.audits:
        yield "bold yellow", "checked NOTHING: this run proves nothing"
    else:
        yield (
            "",
            (
                f"checked {counted(checked['events'], 'event')}, {counted(checked['rows'], 'row')},"
                f" {counted(checked['pages'], 'page')}, {counted(outcome.audits, 'audit')}"
            ),
        )
    yield from unchecked_lines("not checked: ", outcome.stats.not_checked)
    if not outcome.findings:
        yield "green", "no violation found"
    for finding in outcome.findings:
        yield from finding_lines(finding)
