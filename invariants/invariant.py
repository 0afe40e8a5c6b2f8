"""An invariant as an object: its id, its sentence, and the checks that hold events to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import attrs

from kvlife.invariants.finding import Evidence

if TYPE_CHECKING:
    from kvlife.invariants.census import Census
    from kvlife.invariants.effect import Effect

Subject = TypeVar("Subject")

# A check answers None where the invariant holds, and else the evidence against it.
Check = Callable[["Effect"], Evidence | None]
Audit = Callable[["Census"], Evidence | None]


@attrs.frozen
class Invariant:
    """A sentence that must hold, and how it is checked.

    `events` are the event classes that the guard and the post-check are asked about, None for all.
    `guard` sees the event against the ledger before it, `post` against the ledger after it,
    `audit` the whole state. One that is not `built` is never checked, and `why_not` says why.
    """

    id: str
    sentence: str
    kind: str = "guard"
    events: tuple[type, ...] | None = None
    guard: Check | None = None
    post: Check | None = None
    audit: Audit | None = None
    built: bool = True
    why_not: str = ""

    def concerns(self, event_type: type) -> bool:
        """Whether events of this class can break it."""
        return self.events is None or event_type in self.events


def either(
    *checks: Callable[[Subject], Evidence | None],
) -> Callable[[Subject], Evidence | None]:
    """The checks as one: the evidence of the first that has some."""

    def check(subject: Subject) -> Evidence | None:
        return next((found for part in checks if (found := part(subject)) is not None), None)

    return check
