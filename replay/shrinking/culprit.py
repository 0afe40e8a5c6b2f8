"""The event that breaks a run first."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from kvlife.errors import ConfigError
from kvlife.events import Recorded
from kvlife.invariants import Checker, Finding
from kvlife.ledger import Change, Ledger, derive
from kvlife.log import RunHeader
from kvlife.replay.history.timeline import Timeline

Advance = Callable[[int], None]

EVENTS_PER_REPORT = 512


@attrs.frozen(eq=False, kw_only=True)
class Culprit:
    """A faulty event in its envelope, and what it breaks; no finding where the run says so."""

    item: Recorded
    invariant: str
    finding: Finding | None


def recorded_culprit(timeline: Timeline, invariant: str | None) -> Culprit | None:
    """The event at which the run itself says that it ended, where it checked every event.

    Raises `ConfigError` where that is another invariant than the one that is asked for.
    """
    known = Checker().ids
    if invariant is not None and invariant not in known:
        raise ConfigError(f"no such invariant: {invariant!r}; there are {', '.join(known)}")
    recorded = timeline.violated
    if recorded is None or not _checks_all(timeline.run.header):
        return None
    if invariant not in (None, recorded.invariant):
        # The run ended here, so that nothing broke before.
        raise _nothing(timeline, invariant, f"it breaks {recorded.invariant} first, and ends")
    item = _item(timeline, recorded.seq)
    return None if item is None else Culprit(item=item, invariant=recorded.invariant, finding=None)


def _checks_all(header: RunHeader) -> bool:
    known = [inv.id for inv in Checker().catalogue if inv.built]
    return header.level == "event" and all(header.policies.get(of) == "raise" for of in known)


def _item(timeline: Timeline, seq: int) -> Recorded | None:
    return timeline.run.event(seq)


def judge(timeline: Timeline, item: Recorded, ledger: Ledger) -> Finding | None:
    """What the guards say of an event in the state before it, or the post-checks behind it."""
    checker = Checker(audit_every=None)
    change = derive(ledger, item.event)
    found = checker.guard(ledger, item.event, change, item.seq)
    if found is None and type(item.event) in checker.post_events:
        # On a state of its own: the caller's stays what it is.
        ledger = timeline.state(item.seq)
        change = derive(ledger, item.event)
        ledger.apply(item.event, item.seq, item.time_ns, change)
        found = checker.post(ledger, item.event, change, item.seq)
    return found


def first_culprit(timeline: Timeline, invariant: str | None, advance: Advance) -> Culprit:
    """The first event that breaks an invariant, or the one that is asked for.

    The run is checked from its beginning. Raises `ConfigError` where no event breaks it.
    """
    checker = Checker(policy="collect", audit_every=None)
    found: list[Culprit] = []

    def keep(item: Recorded, finding: Finding | None) -> None:
        if finding is not None and invariant in (None, finding.id):
            found.append(Culprit(item=item, invariant=finding.id, finding=finding))

    def guard(ledger: Ledger, item: Recorded, change: Change) -> None:
        keep(item, checker.guard(ledger, item.event, change, item.seq))

    for number, moment in enumerate(timeline.walk(before=guard), 1):
        item = moment.item
        if not found:
            keep(item, checker.post(moment.ledger, item.event, moment.change, item.seq))
        if found:
            return found[0]
        if number % EVENTS_PER_REPORT == 0:
            advance(EVENTS_PER_REPORT)
    recorded = timeline.violated
    last = None if recorded is None else _item(timeline, recorded.seq)
    if last is not None:
        keep(last, judge(timeline, last, timeline.state(last.seq)))
    if found:
        return found[0]
    raise _nothing(timeline, invariant, _what_else(timeline, checker))


def _what_else(timeline: Timeline, checker: Checker) -> str:
    """What the run or an audit says, where no event breaks anything."""
    recorded = timeline.violated
    if recorded is not None:
        for known in checker.catalogue:
            if known.id == recorded.invariant and not known.built:
                return (
                    f"the run recorded {known.id} at seq {recorded.seq}, which no log shows by"
                    f" itself: {known.why_not}"
                )
        return (
            f"the run recorded {recorded.invariant} at seq {recorded.seq}, which did not come"
            " about by an event: the state itself was written to"
        )
    audited = checker.audit(timeline.state())
    if audited:
        return f"an audit of its last state finds {audited[0].id}, which no one event broke"
    return "there is nothing to shrink"


def _nothing(timeline: Timeline, invariant: str | None, why: str) -> ConfigError:
    what = "an invariant" if invariant is None else invariant
    return ConfigError(f"{timeline.run.path}: no event breaks {what}: {why}")
