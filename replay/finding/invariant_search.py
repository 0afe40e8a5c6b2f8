"""The first event that breaks an invariant.

A guard is asked about an event, and what it objects to may leave no trace in a state: an event is
applied as far as it makes sense. So every event is checked again, as in a replay, unless the run
itself ended by a guard's objection. An audit is asked about a state, and states can be searched.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kvlife.errors import ConfigError
from kvlife.events import Recorded
from kvlife.invariants import Checker, Finding
from kvlife.invariants.catalogue import CATALOGUE
from kvlife.invariants.census import Census
from kvlife.invariants.invariant import Invariant
from kvlife.ledger import Change, Ledger
from kvlife.replay.finding.bisection import Reach, Search, Searcher
from kvlife.replay.history.refused import objection
from kvlife.replay.history.timeline import Timeline


@attrs.frozen(kw_only=True)
class Break:
    """The first event that breaks an invariant, or nothing; `evidence` says how.

    `by` is guard or audit. `applied` says whether the run went on to apply the event.
    """

    id: str
    search: Search
    evidence: Mapping[str, object]
    by: str
    applied: bool = True


def invariant_named(name: str) -> Invariant | None:
    """The invariant of the catalogue that has this id; raises `ConfigError` for an unbuilt one."""
    for invariant in CATALOGUE:
        if invariant.id == name:
            if not invariant.built:
                hint = "; kvlife diff does" if name == "rank-agreement" else ""
                raise ConfigError(f"{name} is not checked in one log: {invariant.why_not}{hint}")
            return invariant
    return None


def first_break(searcher: Searcher, invariant: Invariant, reach: Reach) -> Break:
    """The first event from the searcher's start on that breaks the invariant."""
    timeline = searcher.timeline
    recorded = _recorded(timeline, invariant, searcher)
    if recorded is not None:
        return recorded
    start = audit_of(invariant, timeline.state(searcher.start))
    if start is not None:
        search = Search(seq=searcher.start, certain_from=searcher.start, num_states=1)
        return Break(id=invariant.id, search=search, evidence=start, by="audit")
    if invariant.guard is None and invariant.post is None:
        return _audited(searcher, invariant)
    found = _checked(searcher, invariant, reach)
    if found.search.found or invariant.audit is None:
        return found
    # A state may be broken though no event is to blame: behind a hole, or in a false snapshot.
    audited = _audited(searcher, invariant)
    if audited.search.found:
        return audited
    return attrs.evolve(
        found, search=attrs.evolve(found.search, num_states=audited.search.num_states)
    )


def _recorded(timeline: Timeline, invariant: Invariant, searcher: Searcher) -> Break | None:
    """The event that ended the run, where its checker asked about every event before it."""
    violated, header = timeline.violated, timeline.run.header
    if violated is None or violated.applied or violated.invariant != invariant.id:
        return None
    always = header.level == "event" and header.policies.get(invariant.id) == "raise"
    if not always or not searcher.start <= violated.seq <= searcher.stop:
        return None
    return _refused(searcher, invariant)


def _refused(searcher: Searcher, invariant: Invariant, num_events: int = 0) -> Break | None:
    """The event that a guard kept from being applied, where it breaks this invariant."""
    timeline = searcher.timeline
    violated = timeline.violated
    if violated is None or violated.applied or searcher.stop < violated.seq:
        return None
    item = timeline.run.event(violated.seq)
    if item is None:
        return None
    ledger = timeline.state(violated.seq)
    evidence = _evidence(objection(ledger, item), invariant)
    if evidence is None:
        return None
    search = Search(item=item, ledger=ledger, certain_from=searcher.start, num_events=num_events)
    return Break(id=invariant.id, search=search, evidence=evidence, by="guard", applied=False)


def _checker() -> Checker:
    return Checker(policy="collect", audit_every=None)


def _evidence(found: Finding | None, invariant: Invariant) -> Mapping[str, object] | None:
    if found is None:
        return None
    return found.evidence if found.id == invariant.id else found.also.get(invariant.id)


def _checked(searcher: Searcher, invariant: Invariant, reach: Reach) -> Break:
    """Fold and check every event; the first that a guard or post-check of it objects to."""
    checker, start = _checker(), searcher.start
    broken: list[Mapping[str, object]] = []

    def guard(ledger: Ledger, item: Recorded, change: Change) -> None:
        evidence = _evidence(checker.guard(ledger, item.event, change, item.seq), invariant)
        if evidence is not None:
            broken.append(evidence)

    num = 0
    for moment in searcher.timeline.walk(start, searcher.stop, before=guard):
        item, num = moment.item, num + 1
        if not num % 1024:
            reach(item.seq - start)
        found = checker.post(moment.ledger, item.event, moment.change, item.seq)
        evidence = broken[0] if broken else _evidence(found, invariant)
        if evidence is not None:
            search = Search(item=item, ledger=moment.ledger, certain_from=start, num_events=num)
            return Break(id=invariant.id, search=search, evidence=evidence, by="guard")
    refused = _refused(searcher, invariant, num)
    nothing = Break(
        id=invariant.id, search=Search(certain_from=start, num_events=num), evidence={}, by="guard"
    )
    return nothing if refused is None else refused


def _audited(searcher: Searcher, invariant: Invariant) -> Break:
    """Search the states for one that an audit objects to."""
    search = searcher.find()
    ledger = search.ledger
    if ledger is None and search.seq is not None:
        ledger = searcher.timeline.state(search.seq)
    evidence = None if ledger is None else audit_of(invariant, ledger)
    return Break(id=invariant.id, search=search, evidence=evidence or {}, by="audit")


def audit_of(invariant: Invariant, ledger: Ledger) -> Mapping[str, object] | None:
    """What an audit has against a state; where nothing is held, idle-no-leak is asked too."""
    if invariant.audit is None:
        return None
    return invariant.audit(Census(ledger, idle=ledger.is_idle))
