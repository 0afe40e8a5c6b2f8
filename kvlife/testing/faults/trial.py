"""One fault at one place: the run goes on behind it, and what the checker finds is judged."""

from __future__ import annotations

import random
from collections.abc import Sequence

import attrs

from kvlife.events import Event, Recorded, check_structure
from kvlife.invariants import Checker, Finding
from kvlife.ledger import Ledger, derive
from kvlife.testing.faults.fault import HEALED, Fault, Injection, Later
from kvlife.testing.faults.spot import Spot

# A fault that its own event did not show is looked for in so many events behind it.
_PATIENCE = 500


@attrs.frozen(kw_only=True)
class Verdict:
    """What became of a fault at one place.

    `expected` must be broken first, at seq `wrong_seq`: that of the first event that is wrong in
    itself, or of the last one before an audit. `found` is what was broken first, at `found_seq`;
    both are None where nothing was found.
    """

    expected: str
    wrong_seq: int
    found: str | None
    found_seq: int | None

    @property
    def caught(self) -> bool:
        """Whether anything was found at all."""
        return self.found is not None

    @property
    def rightly(self) -> bool:
        """Whether the invariant that should be broken first was."""
        return self.found == self.expected

    @property
    def at_once(self) -> bool:
        """Whether it was found at the first event that is wrong in itself, and not later."""
        return self.found_seq == self.wrong_seq


def injection_at(ledger: Ledger, event: Event, fault: Fault, chance: str) -> Injection | None:
    """What a fault does at this place; the same for the same text of `chance`."""
    return fault.make(Spot(ledger, event, random.Random(chance)))  # noqa: S311  # not a secret


def judge(ledger: Ledger, injection: Injection, rest: Sequence[Recorded]) -> Verdict | None:
    """Do what a fault does to a ledger, go on with the rest of the run, and say what was found.

    The ledger is used up. None: nothing in the rest contradicts the fault, so that the place does
    not count.
    """
    trial = _Trial(ledger)
    if injection.edit is not None:
        trial.ledger = injection.edit(ledger)
        if not injection.events:
            return trial.audit(injection.invariant or "")
    sound = injection.events if injection.later is not None else injection.events[:-1]
    for event in sound:
        if (found := trial.fold(event)) is not None:
            raise AssertionError(f"{event} was to be no fault in itself, and breaks {found.id}")
    if injection.later is not None:
        return trial.wait(injection.later, rest)
    return trial.meet(injection.events[-1], injection.invariant or "", rest)


class _Trial:
    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.checker = Checker(audit_every=None)

    def fold(self, event: Event) -> Finding | None:
        """Check and apply an event; what it breaks first."""
        ledger, seq = self.ledger, self.ledger.next_seq
        check_structure(event, ledger.layout)
        change = derive(ledger, event)
        found = self.checker.guard(ledger, event, change, seq)
        if found is None:
            ledger.apply(event, seq, 0, change)
            found = self.checker.post(ledger, event, change, seq)
        else:
            ledger.apply(event, seq, 0, change)
        return found

    def audit(self, expected: str) -> Verdict:
        """The state is recounted at once."""
        seq = self.ledger.next_seq - 1
        found = self.checker.audit(self.ledger)
        return self._verdict(expected, seq, found[0] if found else None)

    def meet(self, event: Event, expected: str, rest: Sequence[Recorded]) -> Verdict:
        """An event that is wrong in itself; where it is not found, the rest may show it."""
        seq = self.ledger.next_seq
        found = self.fold(event)
        for item in rest[:_PATIENCE]:
            if found is not None:
                break
            found = self.fold(item.event)
        return self._verdict(expected, seq, found)

    def wait(self, later: Later, rest: Sequence[Recorded]) -> Verdict | None:
        """Events that are sound in themselves, until one is not."""
        for idx, item in enumerate(rest):
            expected = later(self.ledger, item.event)
            if expected == HEALED:
                return None
            if expected is not None:
                return self.meet(item.event, expected, rest[idx + 1 :])
            found = self.fold(item.event)
            if found is not None:
                # Sooner than any event is wrong in itself: an alarm without a cause.
                return self._verdict("nothing", self.ledger.next_seq, found)
        return None

    def _verdict(self, expected: str, seq: int, found: Finding | None) -> Verdict:
        return Verdict(
            expected=expected,
            wrong_seq=seq,
            found=None if found is None else found.id,
            found_seq=None if found is None else found.seq,
        )
