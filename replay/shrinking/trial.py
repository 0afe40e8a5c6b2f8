"""A trial: a program folded from the empty state, and what the checker says of its last event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.errors import EventError
from kvlife.events import FIELDS, Event, FieldKind, check_structure
from kvlife.invariants import Checker, Finding
from kvlife.ledger import derive
from kvlife.ledger.ledger import Ledger
from kvlife.replay.shrinking.mending import mend
from kvlife.replay.shrinking.program import Program
from kvlife.replay.shrinking.reading import Piece
from kvlife.replay.shrinking.state import State, frozen

I32 = npt.NDArray[np.int32]
# Any: a field's value, and the event that has such a field.
Changes = dict[FieldKind, Callable[[Any, Any], Any]]

# A column that says 0 was never touched.
FIRST_SEQ = 1


@attrs.frozen(eq=False, kw_only=True)
class Trial:
    """The events that a program comes to, the faulty one behind them, and what it breaks."""

    events: tuple[Event, ...]
    last: Event
    finding: Finding | None
    touched_by: tuple[str, ...]


def run_trial(program: Program) -> Trial:
    """Fold a program: each piece mended, and left out where it would break something itself.

    The faulty event stays as it is, but for pages that the lives have others for. So it alone can
    be what breaks.
    """
    state = State(program)
    checker = Checker(audit_every=None)
    events: list[Event] = []
    for piece in program.pieces:
        if not _fold(state, checker, piece, events):
            # Broken by a sound event, as write-exclusive is found behind it: no use to go on.
            return Trial(events=tuple(events), last=program.last.event, finding=None, touched_by=())
    last = _renamed(state, program.last)
    return _judge(state.ledger, checker, tuple(events), last)


def _fold(state: State, checker: Checker, piece: Piece, events: list[Event]) -> bool:
    ledger, seq = state.ledger, FIRST_SEQ + len(events)
    before = dict(state.life_of) if len(piece.lives) == 1 else state.life_of
    event = mend(state, piece)
    if event is None:
        return True
    change = derive(ledger, event)
    if checker.guard(ledger, event, change, seq) is not None:
        state.life_of = before
        return True
    ledger.apply(event, seq, 0, change)
    events.append(event)
    return checker.post(ledger, event, change, seq) is None


def _judge(ledger: Ledger, checker: Checker, events: tuple[Event, ...], last: Event) -> Trial:
    seq = FIRST_SEQ + len(events)
    try:
        check_structure(last, ledger.layout)
    except EventError:
        return Trial(events=events, last=last, finding=None, touched_by=())
    change = derive(ledger, last)
    found = checker.guard(ledger, last, change, seq)
    if found is None:
        ledger.apply(last, seq, 0, change)
        found = checker.post(ledger, last, change, seq)
    touched = () if found is None else _touched_by(found, events)
    return Trial(events=events, last=last, finding=found, touched_by=touched)


def _touched_by(found: Finding, events: tuple[Event, ...]) -> tuple[str, ...]:
    """The kinds of the events that the evidence names as the last ones on its pages and rows."""
    seqs = found.evidence.get("last_events")
    if not isinstance(seqs, list):
        return ()
    places = (seq - FIRST_SEQ for seq in seqs)
    return tuple(sorted({type(events[at]).__name__ for at in places if 0 <= at < len(events)}))


def _renamed(state: State, last: Piece) -> Event:
    """The faulty event with the pages that the rows it names have here for those they had."""
    ledger = state.ledger
    names: list[dict[int, int]] = [{} for _ in ledger.layout.groups]
    for row, life in state.life_of.items():
        if life not in last.lives:
            continue
        for group in ledger.layout.groups:
            table = ledger.tables[group.idx][row * group.table_width :]
            for entry, page in state.lives[life].pages[group.idx].items():
                here = int(table[entry]) if entry < group.table_width else 0
                if here and here != page:
                    names[group.idx][page] = here
    if not any(names):
        return last.event
    return map_pages(last.event, lambda group, pages: _each(names[group], pages))


def _each(names: dict[int, int], pages: I32) -> I32:
    return np.array([names.get(page, page) for page in pages.tolist()], np.int32)


def map_pages(event: Event, change: Callable[[int, I32], I32]) -> Event:
    """The event with other pages: `change` is given a group and its pages."""
    return map_fields(event, _page_fields(change))


def _page_fields(
    change: Callable[[int, I32], I32],
) -> Changes:
    def links(value: I32, _event: Event) -> I32:
        found = value.copy()
        for place, (group, *_at) in enumerate(value.tolist()):
            found[place, 2:] = change(group, value[place, 2:])
        return frozen(found)

    return {
        FieldKind.PAGES: lambda value, _event: tuple(
            frozen(change(group, pages)) for group, pages in enumerate(value)
        ),
        FieldKind.GROUP_PAGES: lambda value, event: frozen(change(event.group, value)),
        FieldKind.LINKS: links,
    }


def map_fields(
    event: Event,
    changes: Changes,
) -> Event:
    """The event with its fields of some kinds changed."""
    new = {
        field.name: changes[field.kind](getattr(event, field.name), event)
        for field in FIELDS[type(event)]
        if field.kind in changes
    }

    return attrs.evolve(event, **new) if new else event


def speaks_of_rows(evidence: Mapping[str, object]) -> list[int]:
    """The rows that evidence names."""
    return _ints(evidence, "rows", "its_row", "rows_due", "publishers")


def speaks_of_pages(evidence: Mapping[str, object]) -> list[int]:
    """The pages that evidence names."""
    return _ints(evidence, "pages", "new_pages", "in_table", "pages_pinned")


def _ints(evidence: Mapping[str, object], *names: str) -> list[int]:
    found: list[int] = []
    for name in names:
        value = evidence.get(name)
        items = value if isinstance(value, list) else [value]
        found += [item for item in items if isinstance(item, int) and not isinstance(item, bool)]
    return found
