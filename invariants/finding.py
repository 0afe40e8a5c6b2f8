"""What the checker reports: a finding for each broken invariant, and counts of what it checked."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
import numpy.typing as npt

Evidence = dict[str, object]

# Evidence names this many rows or pages; how many there are stands beside them.
MAX_NAMED = 20


@attrs.frozen(kw_only=True)
class Finding:
    """One broken invariant: which, by which event, and the rows, pages and numbers that show it.

    `seq` is the event's, or for an audit the last one folded in; `event` is None for an audit.
    `applied` says whether the event was, or is about to be, applied. `also` maps the ids of the
    other invariants that the same event breaks to their evidence. `after_first` marks findings
    after the first one, which may be no more than its consequences.
    """

    id: str
    sentence: str
    seq: int
    event: object
    evidence: Evidence
    after_first: bool
    applied: bool
    policy: str
    also: Mapping[str, Evidence] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class CheckStats:
    """What a checker has done so far; `violations` counts findings by invariant id."""

    events: int
    rows: int
    pages: int
    audits: int
    violations: Mapping[str, int]
    first: Finding | None


def few(values: npt.ArrayLike) -> list[int]:
    """The first of some numbers, as plain ints for evidence."""
    return [int(value) for value in np.asarray(values).ravel()[:MAX_NAMED]]


def naming(**columns: npt.ArrayLike) -> Evidence:
    """Evidence of columns of numbers, each cut to the first few; a cut column gets its total."""
    evidence: Evidence = {}
    for name, values in columns.items():
        evidence[name] = few(values)
        total = int(np.size(values))
        if total > MAX_NAMED:
            evidence[f"num_{name}"] = total
    return evidence
