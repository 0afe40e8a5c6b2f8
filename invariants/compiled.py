"""For each kind of event, what is to be asked: one fast proof, and the guards behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import attrs

from kvlife.events import Evicted, Pinned, Protected, Unpinned
from kvlife.invariants.catalogue import CATALOGUE
from kvlife.invariants.invariant import Check, Invariant
from kvlife.invariants.proofs import Proof, Proofs

if TYPE_CHECKING:
    from kvlife.events import Event

Checks = tuple[tuple[Invariant, Check], ...]


@attrs.define(eq=False)
class Plan:
    """What is asked about one class of events.

    `proof` answers True where it has shown that every guard of the catalogue holds; only else are
    `guards` asked one by one. A user's `own_guards`, part of `guards` too, are asked in any case.
    `count` counts the pages of an event whose change does not list them.
    """

    proof: Proof
    guards: Checks
    own_guards: Checks
    post_proof: Proof
    posts: Checks
    own_posts: Checks
    count: Callable[[Any], int] | None  # Any: the event class of the plan


_OF_CATALOGUE = frozenset(id(invariant) for invariant in CATALOGUE)


def compile_plans(
    active: Iterable[Invariant], event_types: Iterable[type[Event]], proofs: Proofs
) -> dict[type, Plan]:
    """The plan for each of these classes, from the invariants that are checked."""
    known = list(active)
    return {event_type: _plan(known, event_type, proofs) for event_type in event_types}


def _plan(active: list[Invariant], event_type: type[Event], proofs: Proofs) -> Plan:
    concerned = [invariant for invariant in active if invariant.concerns(event_type)]
    guards = tuple((inv, inv.guard) for inv in concerned if inv.guard is not None)
    posts = tuple((inv, inv.post) for inv in concerned if inv.post is not None)
    ours = any(id(invariant) in _OF_CATALOGUE for invariant, _check in guards)
    return Plan(
        proof=proofs.before(event_type) if ours else _nothing_to_prove,
        guards=guards,
        own_guards=tuple(pair for pair in guards if id(pair[0]) not in _OF_CATALOGUE),
        post_proof=proofs.after(event_type),
        posts=posts,
        own_posts=tuple(pair for pair in posts if id(pair[0]) not in _OF_CATALOGUE),
        count=_COUNTS.get(event_type),
    )


def _nothing_to_prove(_ledger: object, _event: object, _change: object) -> bool:
    return True


_COUNTS: dict[type, Callable[[Any], int]] = {  # Any: the event class beside each function
    Evicted: lambda event: sum(map(len, event.pages)),
    Protected: lambda event: sum(map(len, event.keys)),
    Pinned: lambda event: len(event.pages),
    Unpinned: lambda event: len(event.pages),
}
