"""The life of a request, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kvlife.invariants.effect import holder_of
from kvlife.replay.history.refused import Refused, refused_event
from kvlife.replay.history.selecting import RequestRows
from kvlife.replay.history.view import View
from kvlife.replay.lives.request_life import RequestLife
from kvlife.replay.lives.request_watch import STEPS, Entry, Ladder
from kvlife.replay.output.columns import Line, Signs, aligned, counted, duration, noted
from kvlife.replay.output.moments import clock
from kvlife.replay.output.quoting import printable

_SPARK_WIDTH = 60


def request_lines(view: View, life: RequestLife, limit: int | None, signs: Signs) -> Iterator[Line]:
    """What became of the request, its pages over time, and its events in order."""
    yield "bold", f"request {printable(life.rid)} {_standing(view, life)}"
    yield from (("", line) for line in _summary(life))
    if len(life.entries) > 1:
        yield "", _pages_over_time(life, signs.levels)
    yield "", ""
    shown = life.entries if limit is None else _cut(life.entries, limit)
    groups = [group.name for group in view.ledger.layout.groups]
    heads = ["seq", "step", "time", "event", "", "protected/committed/allocated", *_heads(groups)]
    lines = aligned(
        [heads, *(_cells(entry, len(groups)) for entry in shown)], "rrrllr" + "r" * len(groups)
    )
    left_out = len(life.entries) - len(shown)
    for idx, line in enumerate(lines):
        yield "dim" if idx == 0 else "", line
        if left_out and idx == len(shown) // 2:
            yield "dim", f"  ...  {counted(left_out, 'line')} left out: use --all"
    refused = _refused(view, life)
    if refused is not None:
        yield "red", refused.line
    for trouble in life.troubles:
        yield from noted("yellow", "not read: ", trouble)
    for note in view.notes:
        yield from noted("yellow", "note: ", note)


def _refused(view: View, life: RequestLife) -> Refused | None:
    refused = refused_event(view)
    if refused is None or not RequestRows(life.rid, life.row).concerns(refused.item.event):
        return None
    return refused


def _heads(groups: Sequence[str]) -> list[str]:
    return ["pages"] if len(groups) == 1 else [f"pages of {name}" for name in groups]


def _cells(entry: Entry, num_groups: int) -> list[str]:
    first, last, ladder = entry.first, entry.last, entry.ladder
    told = entry.event != STEPS or first.seq == last.seq
    return [
        f"{first.seq:,}" if told else f"{first.seq:,}-{last.seq:,}",
        f"{first.step:,}" if first.step == last.step else f"{first.step:,}-{last.step:,}",
        clock(first.time_ns),
        entry.event,
        printable(entry.text),
        "" if ladder is None else f"{ladder.protected:,}/{ladder.committed:,}/{ladder.allocated:,}",
        *([""] * num_groups if ladder is None else [f"{num:,}" for num in ladder.pages]),
    ]


def _cut(entries: Sequence[Entry], limit: int) -> Sequence[Entry]:
    """The first half and the last half of `limit` entries."""
    if len(entries) <= limit:
        return entries
    return [*entries[: limit // 2], *entries[len(entries) - (limit - limit // 2) :]]


def _standing(view: View, life: RequestLife) -> str:
    if life.row is not None:
        where = f"holds row {life.row} ({printable(holder_of(view.ledger, life.row))})"
        return f"{where}, up to seq {view.seq:,}"
    if life.waits:
        return f"waits without a row, up to seq {view.seq:,}"
    last = life.entries[-1]
    for entry in reversed(life.entries):
        if entry.event in ("Released", "SessionSaved"):
            last = entry
            break
    how = last.text.split(",")[0] if last.event == "Released" else last.text
    spent = (last.last.time_ns - life.entries[0].first.time_ns) / 1e9
    return (
        f"is gone: {printable(how)} at seq {last.last.seq:,} (step {last.last.step:,}),"
        f" {duration(spent)} after its first event"
    )


def _summary(life: RequestLife) -> Iterator[str]:
    counts = [
        (life.count("Admitted"), "admission"),
        (life.count("SessionRestored"), "turn of a session"),
        (_num_steps(life), "decode step"),
        (life.count("Retracted"), "retraction"),
        (life.count("Pinned"), "pin"),
    ]
    told = [counted(num, what) for num, what in counts if num]
    if life.begun_before:
        told.append("begun before the history that the log has")
    if told:
        yield ", ".join(told)


def _num_steps(life: RequestLife) -> int:
    return sum(
        max(entry.kinds.get("Allocated", 0), entry.kinds.get("Committed", 0))
        for entry in life.entries
        if entry.event == STEPS
    )


def _pages_over_time(life: RequestLife, signs: str) -> str:
    seqs, pages = _samples(life.entries)
    at = np.linspace(seqs[0], seqs[-1], _SPARK_WIDTH)
    held = np.interp(at, seqs, pages)
    most = max(pages)
    levels = np.ceil(held * (len(signs) - 1) / max(most, 1)).astype(int)
    bar = "".join(signs[level] for level in levels)
    return f"pages held: {pages[0]:,} {bar} {pages[-1]:,}, at most {most:,}"


def _samples(entries: Sequence[Entry]) -> tuple[list[float], list[int]]:
    """Seqs, rising, and the pages held at them; they change at events, and along runs of steps."""
    seqs: list[float] = []
    pages: list[int] = []
    for entry in entries:
        if pages:
            seqs.append(entry.first.seq - 0.5)
            pages.append(pages[-1])
        seqs.append(entry.last.seq)
        pages.append(0 if entry.ladder is None else entry.ladder.num_pages)
    return seqs, pages


def request_json(view: View, life: RequestLife) -> dict[str, object]:
    """The same as one object."""
    names = [group.name for group in view.ledger.layout.groups]
    refused = _refused(view, life)
    return {
        "log": str(view.run.path),
        "seq": view.seq,
        "request": life.rid,
        "state": "held" if life.row is not None else "waiting" if life.waits else "gone",
        "row": life.row,
        "begun_before": life.begun_before,
        "decode_steps": _num_steps(life),
        "retractions": life.count("Retracted"),
        "max_pages": max((e.ladder.num_pages for e in life.entries if e.ladder), default=0),
        "entries": [_entry_json(entry, names) for entry in life.entries],
        "refused": None if refused is None else refused.as_json,
        "troubles": list(life.troubles),
        "notes": list(view.notes),
    }


def _entry_json(entry: Entry, names: Sequence[str]) -> dict[str, object]:
    return {
        "first_seq": entry.first.seq,
        "last_seq": entry.last.seq,
        "first_step": entry.first.step,
        "last_step": entry.last.step,
        "first_ns": entry.first.time_ns,
        "last_ns": entry.last.time_ns,
        "event": entry.event,
        "text": entry.text,
        "kinds": entry.kinds,
        "ladder": _ladder_json(entry.ladder, names),
    }


def _ladder_json(ladder: Ladder | None, names: Sequence[str]) -> dict[str, object] | None:
    if ladder is None:
        return None
    return {
        "protected": ladder.protected,
        "committed": ladder.committed,
        "allocated": ladder.allocated,
        "pages": dict(zip(names, ladder.pages, strict=True)),
    }
