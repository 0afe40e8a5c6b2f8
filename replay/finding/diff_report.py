"""Two runs compared: for people in lines, for machines as one JSON object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import attrs

from kvlife.config import Layout
from kvlife.events import Recorded
from kvlife.replay.finding.differing import Comparison
from kvlife.replay.finding.matching import Parting
from kvlife.replay.finding.state_difference import StateDifference
from kvlife.replay.output.columns import Line, counted
from kvlife.replay.output.event_words import FieldDifference, kind_of, words_of
from kvlife.replay.output.quoting import command_line, printable


def comparison_lines(comparison: Comparison) -> Iterator[Line]:
    """The comparison in lines; A is the first log, B the other."""
    yield "bold", f"A           {printable(str(comparison.left.path))}"
    yield "bold", f"B           {printable(str(comparison.right.path))}"
    for found in comparison.headers:
        style = "bold red" if found.counts else ""
        told = f"A {printable(found.left)}, B {printable(found.right)}"
        yield style, f"header      {found.field}: {told}"
    yield from _start_lines(comparison)
    matched = comparison.matched
    if matched.partings:
        yield from _first_lines(comparison, matched.partings[0])
        yield from _later_lines(comparison)
    else:
        same = _events(matched.num_same)
        yield "green", f"the same    {same} in every field but the time"
    for note in comparison.notes:
        yield "yellow", f"note        {printable(note)}"
    if matched.partings:
        first = matched.partings[0]
        for run, seqs in ((comparison.left, first.left_seqs), (comparison.right, first.right_seqs)):
            seq = max(min(seqs[0], run.next_seq - 1), 0)
            command = command_line("inspect", str(run.path), options={"at": seq})
            yield "", f"next        {command}"


def _start_lines(comparison: Comparison) -> Iterator[Line]:
    if not comparison.start:
        return
    yield "", f"compared    from seq {comparison.start} on, where the later of the two begins"
    if comparison.at_start is not None and not comparison.at_start.is_empty:
        yield "bold red", f"different   before seq {comparison.start} already, in the state"
        yield from _state_lines(comparison.at_start)


def _first_lines(comparison: Comparison, first: Parting) -> Iterator[Line]:
    layout = comparison.left.layout
    same = "all before is the same" if comparison.matched.num_same else "nothing before"
    yield "bold red", f"different   from A seq {first.left_seqs[0]} on{_how(first)} ({same})"
    yield "", f"  A         {_event(first.left, layout)}"
    yield "", f"  B         {_event(first.right, layout)}"
    if not first.num_left and not first.num_right:
        for field in comparison.fields[0]:
            yield "red", f"  field     {field.field}: A {field.left}, B {field.right}"
    for name, apart in (("before", comparison.before), ("after", comparison.after)):
        if apart is None:
            continue
        yield "", f"{name:<12}{_states(apart)}"
        yield from _state_lines(apart)


def _how(parting: Parting) -> str:
    if parting.left is None or parting.right is None:
        ended = "A" if parting.left is None else "B"
        return f", where {ended} ends and the other goes on"
    if not parting.num_left and not parting.num_right:
        return ", where the event is another"
    told = [
        f"{name} has {_events(num)} that {other} has not"
        for name, other, num in (("A", "B", parting.num_left), ("B", "A", parting.num_right))
        if num
    ]
    return f": {' and '.join(told)}"


def _events(num: int) -> str:
    return counted(num, "event")


def _event(item: Recorded | None, layout: Layout) -> str:
    if item is None:
        return "the log ends"
    return f"seq {item.seq}, step {item.step}: {words_of(item.event, layout)}"


def _state_lines(apart: StateDifference) -> Iterator[Line]:
    for entry in apart.entries:
        yield "", f"            {entry.what}: A {entry.left} | B {entry.right}"


def _states(apart: StateDifference) -> str:
    if apart.is_empty:
        return "the state is the same in both"
    return f"the states differ: {apart.told}"


def _later_lines(comparison: Comparison) -> Iterator[Line]:
    matched = comparison.matched
    layout = comparison.left.layout
    for parting, fields in zip(matched.partings[1:], comparison.fields[1:], strict=True):
        yield "", f"then        {_later(parting, fields, layout)}"
    more = matched.num_partings - len(matched.partings)
    if more:
        yield "", f"then        {counted(more, 'more place')}"
    for what, counts in (
        ("only in A", matched.only_left),
        ("only in B", matched.only_right),
        ("changed", matched.changed),
    ):
        if counts:
            yield "", f"{what:<12}{_kinds(counts)}"
    for what, counts in (
        ("more in A", matched.only_left - matched.only_right),
        ("more in B", matched.only_right - matched.only_left),
    ):
        if counts and matched.only_left and matched.only_right:
            yield "", f"{what:<12}{_kinds(counts)}"
    yield "", f"the same    {_events(matched.num_same)}"
    yield "", f"length      A {_length(comparison, 0)}, B {_length(comparison, 1)}"
    if matched.together is None:
        yield "", "together    not again: they differ up to the end"
    else:
        mine, other = matched.together
        yield (
            "",
            (
                f"together    again from A seq {mine}, B seq {other} on: the last"
                f" {counted(matched.num_together, 'event is', 'events are')} the same"
            ),
        )
    if comparison.at_end is not None:
        yield "", f"at the end  {_states(comparison.at_end)}"


def _length(comparison: Comparison, side: int) -> str:
    run = (comparison.left, comparison.right)[side]
    return f"{counted(run.next_seq - comparison.start, 'event')}"


def _later(parting: Parting, fields: tuple[FieldDifference, ...], layout: Layout) -> str:
    """A place where the logs part again, in a line."""
    mine, other = parting.left, parting.right
    if parting.num_left or parting.num_right or mine is None or other is None:
        nums = f"{parting.num_left:,} only in A, {parting.num_right:,} only in B"
        return f"{nums}: A {_short(mine, layout)} | B {_short(other, layout)}"
    told = "; ".join(f"{field.field} A {field.left}, B {field.right}" for field in fields[:2])
    seqs = f"seq {mine.seq}" if mine.seq == other.seq else f"A seq {mine.seq}, B seq {other.seq}"
    return f"changed {seqs} {kind_of(mine.event)}: {told}"


def _short(item: Recorded | None, layout: Layout) -> str:
    if item is None:
        return "ends"
    words = words_of(item.event, layout)
    return f"seq {item.seq} {words if len(words) <= 60 else words[:59] + '…'}"


def _kinds(counts: Counter[str]) -> str:
    return ", ".join(f"{num:,} {kind}" for kind, num in counts.most_common())


def comparison_json(comparison: Comparison) -> dict[str, object]:
    """One of the comparisons of `kvlife diff --json`."""
    matched = comparison.matched
    first = matched.partings[0] if matched.partings else None
    together = matched.together if matched.num_partings else None
    return {
        "left": str(comparison.left.path),
        "right": str(comparison.right.path),
        "differs": comparison.differs,
        "from_seq": comparison.start,
        "header": [attrs.asdict(found) for found in comparison.headers],
        "state_at_start": _state_json(comparison.at_start),
        "first": None if first is None else _parting_json(first, comparison.left.layout),
        "fields": [attrs.asdict(field) for field in comparison.fields[0]] if first else [],
        "state_before": _state_json(comparison.before),
        "state_after": _state_json(comparison.after),
        "state_at_end": _state_json(comparison.at_end),
        "partings": [
            _parting_json(each, comparison.left.layout)
            | {"fields": [attrs.asdict(field) for field in fields]}
            for each, fields in zip(matched.partings, comparison.fields, strict=True)
        ],
        "num_partings": matched.num_partings,
        "only_left": dict(matched.only_left),
        "only_right": dict(matched.only_right),
        "changed": dict(matched.changed),
        "num_same": matched.num_same,
        "together_again": None if together is None else list(together),
        "num_together": matched.num_together if together is not None else 0,
        "next_seqs": [comparison.left.next_seq, comparison.right.next_seq],
        "notes": list(comparison.notes),
    }


def _parting_json(parting: Parting, layout: Layout) -> dict[str, object]:
    return {
        "left": _event_json(parting.left, layout),
        "right": _event_json(parting.right, layout),
        "num_left": parting.num_left,
        "num_right": parting.num_right,
        "left_seqs": list(parting.left_seqs),
        "right_seqs": list(parting.right_seqs),
    }


def _event_json(item: Recorded | None, layout: Layout) -> dict[str, object] | None:
    if item is None:
        return None
    return {
        "seq": item.seq,
        "step": item.step,
        "time_ns": item.time_ns,
        "kind": kind_of(item.event),
        "event": words_of(item.event, layout),
    }


def _state_json(apart: StateDifference | None) -> dict[str, object] | None:
    if apart is None:
        return None
    return {
        "counts": dict(apart.counts),
        "entries": [attrs.asdict(entry) for entry in apart.entries],
    }
