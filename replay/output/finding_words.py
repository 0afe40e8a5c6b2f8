"""What the checker found, in lines and as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvlife.invariants import Finding
from kvlife.invariants.catalogue import CATALOGUE
from kvlife.replay.output.columns import Line, counted

# As a checker's `names_off` tells what it has no check of, whatever it is told to do.
_UNBUILT = {f"{inv.id}: {inv.why_not}": inv.id for inv in CATALOGUE if not inv.built}


def finding_lines(finding: Finding) -> Iterator[Line]:
    """Which invariant was broken where, its sentence, and the evidence."""
    yield "bold red", f"violation: {finding.id} at seq {finding.seq}, by {_culprit(finding)}"
    yield "red", f"  {finding.sentence}"
    for name, value in finding.evidence.items():
        yield "", f"  {name}: {value}"


def finding_json(finding: Finding) -> dict[str, object]:
    """All of a finding but its sentence; an audit's has no event."""
    return {
        "id": finding.id,
        "seq": finding.seq,
        "event": None if finding.event is None else _culprit(finding),
        "evidence": dict(finding.evidence),
        "also": {name: dict(evidence) for name, evidence in finding.also.items()},
        "applied": finding.applied,
        "after_first": finding.after_first,
    }


def unchecked_lines(label: str, names_off: Sequence[str]) -> Iterator[Line]:
    """What was switched off, each with the reason; what is never checked here, in one line."""
    for line in names_off:
        if line not in _UNBUILT:
            yield "yellow", f"{label}{line}"
    never = [_UNBUILT[line] for line in names_off if line in _UNBUILT]
    if never:
        what = f"{counted(len(never), 'invariant')} that cannot be checked here"
        yield "dim", f"{label}{what}: {', '.join(never)}; --json says why"


def _culprit(finding: Finding) -> str:
    return "an audit" if finding.event is None else type(finding.event).__name__
