"""A fault as an object: a sentence, where it applies, what it puts there, and what must find it."""

from __future__ import annotations

import enum
from collections.abc import Callable

import attrs

from kvlife.events import Event
from kvlife.ledger import Ledger
from kvlife.testing.faults.spot import Spot


class Kind(enum.Enum):
    """What a fault tampers with.

    STREAM: the events as they are told: lost, doubled, garbled. DECISION: what an engine chooses;
    its event is derived from the wrong choice, and agrees with itself. COLUMNS: the ledger's state,
    or a snapshot of it, behind the back of the events.
    """

    STREAM = "stream"
    DECISION = "decision"
    COLUMNS = "columns"


class When(enum.Enum):
    """The first event that is wrong in itself, and so the one at which a fault must be found."""

    EVENT = "the faulty event"
    LATER = "the next event that it contradicts"
    AUDIT = "the audit"


# What `later` answers where nothing can be wrong any more: the place does not count.
HEALED = "healed"

# What a later event breaks where a fault has changed the state that it finds; None: nothing.
Later = Callable[[Ledger, Event], str | None]


@attrs.frozen(kw_only=True)
class Injection:
    """What a fault does at one place of a run.

    `events` stand in place of the sound one; the last of them is the one that is wrong in itself,
    and must break `invariant` first. Where none of them is, `later` says of each event that
    follows what it breaks now. `edit` changes the ledger before all of them, and may give another
    one; where there are no events then, the state is recounted.
    """

    events: tuple[Event, ...] = ()
    invariant: str | None = None
    later: Later | None = None
    edit: Callable[[Ledger], Ledger] | None = None


@attrs.frozen(kw_only=True)
class Fault:
    """One way to be wrong. `make` answers None where it does not apply.

    `fires` are the invariants that it breaks first, one at each place; `of` the classes of events
    at which it can be placed.
    """

    name: str
    sentence: str
    kind: Kind
    when: When
    fires: tuple[str, ...]
    of: tuple[type[Event], ...]
    make: Callable[[Spot], Injection | None]


class Faults:
    """A list of faults in the making: each function is entered by the line above it."""

    def __init__(self) -> None:
        """Start with none."""
        self.found: list[Fault] = []

    def at(
        self,
        name: str,
        kind: Kind,
        fires: str | tuple[str, ...],
        *of: type[Event],
        when: When = When.EVENT,
    ) -> Callable[[Callable[[Spot], Injection | None]], Callable[[Spot], Injection | None]]:
        """Enter a function as a fault; its docstring is the sentence."""

        def enter(make: Callable[[Spot], Injection | None]) -> Callable[[Spot], Injection | None]:
            ids = (fires,) if isinstance(fires, str) else fires
            self.found.append(
                Fault(
                    name=name,
                    sentence=(make.__doc__ or "").strip(),
                    kind=kind,
                    when=when,
                    fires=ids,
                    of=of,
                    make=make,
                )
            )
            return make

        return enter
