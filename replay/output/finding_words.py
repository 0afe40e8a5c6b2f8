"""What the checker found, in lines and as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator

from kvlife.invariants import Finding
from kvlife.replay.output.columns import Line


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


def _culprit(finding: Finding) -> str:
    return "an audit" if finding.event is None else type(finding.event).__name__
