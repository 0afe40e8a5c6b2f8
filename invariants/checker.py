"""The checker: holds every event to the invariants, and says what it checked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import attrs

from kvlife.errors import ConfigError
from kvlife.events import EVENT_TYPES, Marked
from kvlife.invariants.catalogue import CATALOGUE
from kvlife.invariants.census import Census, IndexPages
from kvlife.invariants.compiled import Checks, Plan, compile_plans
from kvlife.invariants.effect import Effect
from kvlife.invariants.finding import CheckStats, Evidence, Finding
from kvlife.invariants.invariant import Invariant
from kvlife.invariants.proofs import Proofs

if TYPE_CHECKING:
    from kvlife.events import Event
    from kvlife.ledger import Change, Ledger

LEVELS = ("event", "step", "sample", "off")
POLICIES = ("raise", "collect", "log")


class Checker:
    """Checks events before and after they are applied, and audits the whole state.

    `level`: "event" checks every event; "sample" every `sample_every`th; "step" only audits, at the
    first event of each step; "off" nothing. `policy` holds for all invariants, `policies` for some
    by id; `ignore` names ids that are not checked. An audit is due every `audit_every` events
    (None: only when it is asked for). `on_violation` is called once for each finding.

    `post_events` are the classes of events that `post` has anything to ask about.

    The checker finds; the observer that calls it logs, raises and closes. An unknown id, level or
    policy is a `ConfigError`.
    """

    def __init__(
        self,
        level: str = "event",
        policy: str = "raise",
        policies: Mapping[str, str] | None = None,
        ignore: Iterable[str] = (),
        *,
        sample_every: int = 16,
        audit_every: int | None = 100_000,
        on_violation: Callable[[Finding], None] | None = None,
    ) -> None:
        self.level = _known("level", level, LEVELS)
        self.policy = _known("policy", policy, POLICIES)
        self.sample_every = _positive("sample_every", sample_every)
        self.audit_every = None if audit_every is None else _positive("audit_every", audit_every)
        self._on_violation = on_violation
        self._catalogue: list[Invariant] = list(CATALOGUE)
        ids = [invariant.id for invariant in self._catalogue]
        self.policies = {
            _known("invariant id", of, ids): _known("policy", which, POLICIES)
            for of, which in (policies or {}).items()
        }
        self.ignored = frozenset(_known("invariant id", of, ids) for of in ignore)
        self._every = {"event": 1, "sample": self.sample_every}.get(level, 0)
        self._events = self._rows = self._pages = self._audits = self._passed = 0
        self._violations: dict[str, int] = {}
        self._first: Finding | None = None
        # The seqs of the latest findings of this checker's own.
        self._faulty: deque[int] = deque(maxlen=1 << 10)
        self._step: int | None = None
        self._compile()

    def _compile(self) -> None:
        active = [inv for inv in self._catalogue if inv.built and inv.id not in self.ignored]
        self._audited = [inv for inv in active if inv.audit is not None]
        self._proofs = Proofs(lambda: self._events + self._passed)
        if self.level != "event" or self.ignored:
            # Events, or faults, pass unseen, so that nothing proven earlier may be built on.
            self._proofs.build_on_nothing()
        self._plans: dict[type, Plan] = {}
        if self.level in ("event", "sample"):
            self._plans = compile_plans(active, EVENT_TYPES, self._proofs)
        elif self.level == "step":
            # An idle mark is a question of its own, whatever lies between.
            self._plans = compile_plans(active, (Marked,), self._proofs)
            self._every = 1
        self.post_events = frozenset(of for of, plan in self._plans.items() if plan.posts)

    def register(self, invariant: Invariant, *, policy: str | None = None) -> None:
        """Add a user's own invariant, below the catalogue; its checks always run in full."""
        if any(known.id == invariant.id for known in self._catalogue):
            raise ConfigError(f"an invariant with the id {invariant.id!r} is there: choose another")
        if invariant.built and not (invariant.guard or invariant.post or invariant.audit):
            raise ConfigError(f"invariant {invariant.id!r} has no guard, post-check or audit")
        if policy is not None:
            self.policies[invariant.id] = _known("policy", policy, POLICIES)
        self._catalogue.append(invariant)
        self._compile()

    def attach(self, ids: Iterable[str]) -> None:
        """Somebody else looks after these invariants in this run; `note` takes what they find."""
        known = [invariant.id for invariant in self._catalogue]
        looked_after = {_known("invariant id", of, known) for of in ids}
        self._catalogue = [
            attrs.evolve(inv, built=True, why_not="") if inv.id in looked_after else inv
            for inv in self._catalogue
        ]

    def note(self, invariant_id: str, seq: int, evidence: Evidence) -> Finding | None:
        """Take in what was found by who looks after an invariant; None where it is off."""
        if self.level == "off" or invariant_id in self.ignored:
            return None
        invariant = next(inv for inv in self._catalogue if inv.id == invariant_id)
        return self._report(invariant, evidence, seq, None, after=True)

    def found_at(self, seq: int) -> bool:
        """Whether the checks here found something at this event, of late."""
        return seq in self._faulty

    @property
    def catalogue(self) -> tuple[Invariant, ...]:
        """All invariants, the registered ones last, whether or not they are checked."""
        return tuple(self._catalogue)

    def policy_of(self, invariant_id: str) -> str:
        """What is to be done when this invariant is broken: raise, collect or log."""
        return self.policies.get(invariant_id, self.policy)

    def guard(self, ledger: Ledger, event: Event, change: Change, seq: int) -> Finding | None:
        """Check an event before it is applied; the first broken invariant, or None."""
        plan = self._plans.get(event.__class__)
        if plan is None or seq % self._every:
            self._passed += 1
            if plan is not None:
                self._proofs.pass_over(ledger, event)
            return None
        self._events += 1
        index = change.index
        if index is not None:
            self._rows += len(index)
        elif change.row is not None:
            self._rows += 1
        for pages in change.taken or change.gone or change.joined or ():
            self._pages += len(pages)
        if plan.count is not None:
            self._pages += plan.count(event)
        checks = plan.guards
        if plan.proof(ledger, event, change):
            checks = plan.own_guards
            if not checks:
                return None
        return self._find(checks, Effect(ledger, event, change), seq)

    def post(self, ledger: Ledger, event: Event, change: Change, seq: int) -> Finding | None:
        """Check an event after it was applied; the first broken invariant, or None."""
        plan = self._plans.get(event.__class__)
        if plan is None or not plan.posts or seq % self._every:
            return None
        checks = plan.posts
        if plan.post_proof(ledger, event, change):
            checks = plan.own_posts
            if not checks:
                return None
        return self._find(checks, Effect(ledger, event, change), seq, after=True)

    def _find(
        self, checks: Checks, effect: Effect, seq: int, *, after: bool = False
    ) -> Finding | None:
        broken: list[tuple[Invariant, Evidence]] = []
        for invariant, check in checks:
            evidence = check(effect)
            if evidence is not None:
                broken.append((invariant, evidence))
        if not broken:
            return None
        # One that must raise goes before one that need not, wherever it stands in the catalogue.
        first = next((b for b in broken if self.policy_of(b[0].id) == "raise"), broken[0])
        others = {inv.id: evidence for inv, evidence in broken if inv is not first[0]}
        self._faulty.append(seq)
        return self._report(first[0], first[1], seq, effect.event, after=after, also=others)

    def _report(
        self,
        invariant: Invariant,
        evidence: Evidence,
        seq: int,
        event: Event | None,
        *,
        after: bool,
        also: Mapping[str, Evidence] | None = None,
    ) -> Finding:
        self._proofs.forget()
        policy = self.policy_of(invariant.id)
        finding = Finding(
            id=invariant.id,
            sentence=invariant.sentence,
            seq=seq,
            event=event,
            evidence=evidence,
            after_first=self._first is not None,
            applied=after or policy != "raise",
            policy=policy,
            also=also or {},
        )
        for broken in (finding.id, *finding.also):
            self._violations[broken] = self._violations.get(broken, 0) + 1
        if self._first is None:
            self._first = finding
        if self._on_violation is not None:
            self._on_violation(finding)
        return finding

    def due(self, seq: int, step: int, event: Event) -> bool:  # noqa: ARG002  # part of the call
        """Whether an audit is due at this event; the answer depends on nothing but its envelope."""
        if self.level == "off":
            return False
        if self.level == "step" and step != self._step:
            self._step = step
            return True
        return self.audit_every is not None and (seq + 1) % self.audit_every == 0

    def audit(
        self, ledger: Ledger, index: IndexPages | None = None, *, idle: bool = False
    ) -> list[Finding]:
        """Recount the whole state; with `idle`, nothing may be held. The findings, by catalogue.

        A prefix index is held against the CACHED pages where one is given. At level "off" it finds
        nothing, because it looks at nothing.
        """
        if self.level == "off":
            return []
        self._audits += 1
        census = Census(ledger, index, idle=idle)
        seq = max(ledger.next_seq - 1, 0)
        findings = []
        for invariant in self._audited:
            evidence = None if invariant.audit is None else invariant.audit(census)
            if evidence is not None:
                self._faulty.append(seq)
                findings.append(self._report(invariant, evidence, seq, None, after=True))
        if findings:
            self._proofs.forget_columns()
        return findings

    @property
    def stats(self) -> CheckStats:
        """What was checked and found so far."""
        return CheckStats(
            events=self._events,
            rows=self._rows,
            pages=self._pages,
            audits=self._audits,
            violations=dict(self._violations),
            first=self._first,
        )

    def names_off(self) -> tuple[str, ...]:
        """What was not checked, and why: level, ids ignored, and what cannot be checked here."""
        lines = []
        if self.level == "off":
            lines.append("level off: no event is checked, and no audit made")
        elif self.level == "step":
            lines.append(
                "level step: no event is checked by itself, each step begins with an audit"
            )
        elif self.level == "sample":
            lines.append(f"level sample: of {self.sample_every} events one is checked")
        if self.audit_every is None and self.level != "off":
            lines.append("no audit is made unless it is asked for")
        lines += [f"{ignored}: ignored" for ignored in self.ids if ignored in self.ignored]
        lines += [f"{inv.id}: {inv.why_not}" for inv in self._catalogue if not inv.built]
        return tuple(lines)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all invariants, in the order of the catalogue."""
        return tuple(invariant.id for invariant in self._catalogue)

    def summary(self) -> tuple[str, ...]:
        """What was checked, what was found, and what was off, in lines of text."""
        counts = f"{self._events} events, {self._rows} rows, {self._pages} pages"
        lines = [f"checked {counts}, {self._audits} audits"]
        if not self._events and not self._audits:
            lines.append("NOTHING WAS CHECKED: this run proves nothing")
        if self._first is None:
            lines.append("no violation found")
        for broken, times in self._violations.items():
            lines.append(f"violated {times} times: {broken}")
        if self._first is not None:
            event = "an audit" if self._first.event is None else type(self._first.event).__name__
            lines.append(f"first: {self._first.id} at seq {self._first.seq}, by {event}")
        return (*lines, *(f"not checked: {line}" for line in self.names_off()))


def _known(what: str, value: str, known: Iterable[str]) -> str:
    names = list(known)
    if value not in names:
        raise ConfigError(f"no such {what}: {value!r}; there are {', '.join(names)}")
    return value


def _positive(what: str, value: int) -> int:
    if isinstance(value, bool) or value < 1:
        raise ConfigError(f"{what} must be a whole number of at least 1, got {value!r}")
    return value
