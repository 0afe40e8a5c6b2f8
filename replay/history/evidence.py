"""What the evidence of a violation names: pages of a space, rows, requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvlife.config import Layout
from kvlife.replay.replaying.outcome import Found

Evidence = Mapping[str, object]


def each_evidence(found: Found) -> tuple[Evidence, ...]:
    """The evidence of the violation itself, then that of what else the event breaks."""
    return (found.evidence, *found.also.values())


def pages_named(layout: Layout, evidence: Evidence) -> Iterator[tuple[int, int]]:
    """The pages that evidence names, each as (page space, page)."""
    space_idx = _space_of(layout, evidence)
    for name in ("pages", "new_pages"):
        yield from ((space_idx, page) for page in _ints(evidence.get(name)))


def host_pages_named(layout: Layout, evidence: Evidence) -> Iterator[int]:
    """The pages of the host that evidence names; none where the log has no such pages."""
    if layout.host_pages:
        for name in ("host_pages", "host_pages_owned"):
            yield from _ints(evidence.get(name))


def rows_named(evidence: Evidence) -> Iterator[int]:
    """The rows that evidence names."""
    for name in ("rows", "its_row", "rows_due", "publishers"):
        yield from _ints(evidence.get(name))


def _space_of(layout: Layout, evidence: Evidence) -> int:
    for space in layout.spaces:
        if space.name == evidence.get("space"):
            return space.idx
    for group in layout.groups:
        if group.name == evidence.get("group"):
            return group.space_idx
    return layout.groups[layout.base].space_idx


def _ints(value: object) -> list[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    if isinstance(value, list | tuple):
        return [item for item in value if isinstance(item, int)]
    return []
