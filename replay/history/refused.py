"""The event that ended a run because a guard refused it: it was never applied, and still a clue."""

from __future__ import annotations

import attrs

from kvlife.errors import KvLifeError
from kvlife.events import Recorded
from kvlife.invariants import Checker, Finding
from kvlife.ledger import Ledger, derive
from kvlife.replay.history.view import View
from kvlife.replay.output.event_words import kind_of


@attrs.frozen
class Refused:
    """The event, and the id of the invariant that it would have broken."""

    item: Recorded
    invariant: str

    @property
    def line(self) -> str:
        """What a life that the event would have gone on with ends with."""
        item = self.item
        return (
            f"seq {item.seq:,} ({kind_of(item.event)}, step {item.step:,}) names it too, and was"
            f" refused: {self.invariant}"
        )

    @property
    def as_json(self) -> dict[str, object]:
        """The same as one object."""
        item = self.item
        return {"seq": item.seq, "event": kind_of(item.event), "invariant": self.invariant}


def refused_event(view: View) -> Refused | None:
    """What was refused behind the last state of a run; None before it, and of a run without."""
    violated = view.timeline.violated
    if violated is None or violated.applied or not view.at_end:
        return None
    try:
        item = view.run.event(violated.seq)
    except KvLifeError:
        return None  # the notes of the view say what is wrong there
    return None if item is None else Refused(item, violated.invariant)


def objection(ledger: Ledger, item: Recorded) -> Finding | None:
    """What the guards have against an event in the state before it, asked again."""
    checker = Checker(policy="collect", audit_every=None)
    return checker.guard(ledger, item.event, derive(ledger, item.event), item.seq)
