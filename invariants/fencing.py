"""Guards over what is in flight: evictions, pins, steps, and pages not yet written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvlife.events import (
    Committed,
    Evicted,
    Pinned,
    Protected,
    Resized,
    StepDispatched,
    StepSettled,
    Unpinned,
)
from kvlife.invariants.effect import holders, repeated
from kvlife.invariants.finding import MAX_NAMED, Evidence, few, naming
from kvlife.invariants.giving import evicted_by_space, owners_of
from kvlife.ledger import PageState, RowState
from kvlife.ledger.entries import touched_entries

if TYPE_CHECKING:
    from kvlife.config import GroupLayout
    from kvlife.invariants.effect import I32, I64, Effect


def evicted_while_locked(effect: Effect) -> Evidence | None:
    """An evicted page was CACHED, and nothing references or pins it."""
    if not isinstance(effect.event, Evicted):
        return None
    for space_idx, pages in enumerate(evicted_by_space(effect, effect.event)):
        space = effect.ledger.spaces[space_idx]
        state = space.state[pages]
        # One that was FREE is freed twice: page-double-free says so.
        other = (state != PageState.CACHED) & (state != PageState.FREE)
        locked = pages[other | (space.refs[pages] > 0) | (space.pins[pages] > 0)]
        if locked.size:
            return effect.page_evidence(
                space_idx,
                locked,
                reason=effect.event.reason,
                owners=owners_of(effect, space_idx, locked),
                pins_held=_pins_on(effect, space_idx, locked),
            )
    return None


def _pins_on(effect: Effect, space_idx: int, pages: I64) -> list[str]:
    """The ids of pins, and open steps, that hold one of these pages."""
    ledger, groups = effect.ledger, effect.ledger.layout.groups
    names = [
        pin_id
        for pin_id, pin in ledger.pins.items()
        if groups[pin.group].space_idx == space_idx and np.isin(pages, pin.pages).any()
    ]
    names += [
        f"step {step}"
        for step, opened in ledger.steps.items()
        for group, pinned in opened.pinned
        if groups[group].space_idx == space_idx and np.isin(pages, pinned).any()
    ]
    return names[:MAX_NAMED]


def pinned_page_freed(effect: Effect) -> Evidence | None:
    """A page with pins is not FREE, is not handed out, and a pin ends as it began."""
    match effect.event:
        case Pinned():
            return _pinned_wrongly(effect, effect.event)
        case Unpinned():
            return _unpinned_wrongly(effect, effect.event)
        case Evicted():
            lists = list(enumerate(evicted_by_space(effect, effect.event)))
            why = "a pinned page is evicted"
        case Resized():
            space = effect.ledger.spaces[effect.event.space]
            lost = np.arange(effect.event.num_pages, space.num_pages)
            lists, why = [(effect.event.space, lost)], "a pinned page is dropped"
        case _:
            lists = list(enumerate(effect.taken_by_space()))
            why = "a page is handed out while it is pinned"
    for space_idx, pages in lists:
        space = effect.ledger.spaces[space_idx]
        # A FREE page with a pin was pinned in error, and that was the event to blame.
        held = (space.pins[pages] > 0) & (space.state[pages] != PageState.FREE)
        held |= space.state[pages] == PageState.QUARANTINED
        if held.any():
            pins = _pins_on(effect, space_idx, pages[held])
            return effect.page_evidence(space_idx, pages[held], why=why, pins_held=pins)
    return None


def _pinned_wrongly(effect: Effect, event: Pinned) -> Evidence | None:
    space_idx = effect.ledger.layout.groups[event.group].space_idx
    before = effect.ledger.pins.get(event.pin_id)
    if before is not None:
        return {
            "why": "the pin id is in use",
            "pin": event.pin_id,
            "pinned_at": before.seq,
            "pages": few(before.pages),
        }
    free = event.pages[effect.ledger.spaces[space_idx].state[event.pages] == PageState.FREE]
    twice = repeated(event.pages)
    if not free.size and not twice.size:
        return None
    why = "a FREE page is pinned" if free.size else "a page stands twice in the pin"
    named = free if free.size else twice
    return effect.page_evidence(space_idx, named, why=why, pin=event.pin_id)


def _unpinned_wrongly(effect: Effect, event: Unpinned) -> Evidence | None:
    pin = effect.ledger.pins.get(event.pin_id)
    if pin is None:
        return {"why": "no such pin is held", "pin": event.pin_id, **naming(pages=event.pages)}
    if pin.group == event.group and np.array_equal(np.sort(pin.pages), np.sort(event.pages)):
        return None
    groups = effect.ledger.layout.groups
    return {
        "why": "the pages are not those of the pin",
        "pin": event.pin_id,
        "pinned_at": pin.seq,
        "groups": [groups[event.group].name, groups[pin.group].name],
        **naming(pages=event.pages, pages_pinned=pin.pages),
    }


def in_flight_fence(effect: Effect) -> Evidence | None:
    """What a step in flight reads stays; rows drain and steps settle in their order."""
    match effect.event:
        case StepDispatched():
            return _dispatched(effect, effect.event)
        case StepSettled():
            return _settled(effect, effect.event)
        case Committed():
            return _under_write(effect, effect.before.committed, effect.after.committed)
        case Protected():
            return _under_write(effect, effect.before.protected, effect.after.protected)
        case _:
            return _freed_in_flight(effect)


def _freed_in_flight(effect: Effect) -> Evidence | None:
    if not effect.keeps_its_pages:
        return None
    for moves in effect.moves:
        if moves.gone.size:
            row = int(effect.rows[0])
            steps = [s for s, opened in effect.ledger.steps.items() if row in opened.rows]
            return effect.page_evidence(
                moves.group.space_idx,
                moves.gone,
                why="the row is in flight: it drains, and lets go when its last step settles",
                group=moves.group.name,
                rows=[row],
                open_steps=steps,
            )
    return None


def _dispatched(effect: Effect, event: StepDispatched) -> Evidence | None:
    steps = effect.ledger.steps
    newest = next(reversed(steps), None)
    if newest is not None and event.step <= newest:
        return {
            "why": "the step is not above those in flight",
            "step": event.step,
            "open_steps": list(steps)[-MAX_NAMED:],
            "dispatched_at": steps[newest].seq,
        }
    return _under_write(effect, np.zeros_like(effect.before.allocated), effect.before.allocated)


def _settled(effect: Effect, event: StepSettled) -> Evidence | None:
    ledger = effect.ledger
    oldest = next(iter(ledger.steps), None)
    if event.step != oldest:
        return {
            "why": "the step is not the oldest in flight",
            "step": event.step,
            "open_steps": list(ledger.steps)[:MAX_NAMED],
        }
    due = ledger.steps[event.step].rows
    due = due[(ledger.rows.state[due] == RowState.DRAINING) & (ledger.rows.in_flight[due] == 1)]
    if np.array_equal(np.sort(due), np.sort(event.drained)):
        return None
    last = ledger.rows.last_event[event.drained]
    return {
        "why": "the rows that drain are not those whose last step this is",
        "step": event.step,
        **naming(rows=event.drained, rows_due=due, last_events=last),
        "in_flight": few(ledger.rows.in_flight[event.drained]),
        "holders": holders(ledger, event.drained),
    }


def _under_write(effect: Effect, low_len: I64, high_len: I64) -> Evidence | None:
    """Pages of [low, high) of the rows that something outside still writes."""
    writers = {pin_id: pin for pin_id, pin in effect.ledger.pins.items() if pin.writes}
    if not writers:
        return None
    for group in effect.ledger.layout.groups:
        pages = pages_between(effect, group, low_len, high_len)
        for pin_id, pin in writers.items():
            hit = pages[np.isin(pages, pin.pages)] if pin.group == group.idx else pages[:0]
            hit = hit[effect.space_of(group).pins[hit] > 0]
            if hit.size:
                return effect.page_evidence(
                    group.space_idx,
                    hit,
                    why="a pin still writes the page",
                    group=group.name,
                    pin=pin_id,
                    pinned_at=pin.seq,
                    rows=few(effect.rows),
                )
    return None


def pages_between(effect: Effect, group: GroupLayout, low_len: I64, high_len: I64) -> I32:
    """The pages on which positions [low, high) of the rows lie, zeros left out."""
    at = touched_entries(group, effect.rows, low_len, high_len)
    pages: I32 = effect.ledger.tables[group.idx][at]
    return pages.compress(pages != 0)


def written_before_shared(effect: Effect) -> Evidence | None:
    """A page published before it was written is read only after its publisher is on the way."""
    ledger, event = effect.ledger, effect.event
    if not isinstance(event, StepDispatched) or not ledger.layout.scheduled:
        return None
    rows = ledger.rows
    early = np.flatnonzero((rows.state == RowState.HELD) & (rows.protected > rows.committed))
    # A publisher in this step, or in one dispatched before, writes no later than this one reads.
    early = early[(rows.in_flight[early] == 0) & ~np.isin(early, event.rows)]
    for group in ledger.layout.groups:
        at = touched_entries(group, early, rows.committed[early], rows.protected[early])
        unwritten = ledger.tables[group.idx][at]
        read = pages_between(
            effect, group, np.zeros_like(effect.before.allocated), effect.before.allocated
        )
        hit = (unwritten != 0) & np.isin(unwritten, read)
        if hit.any():
            publishers = np.unique(at[hit] // group.table_width)
            return effect.page_evidence(
                group.space_idx,
                unwritten[hit],
                group=group.name,
                step=event.step,
                publishers=few(publishers),
                holders=holders(ledger, publishers),
            )
    return None
