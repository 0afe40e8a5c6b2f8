"""The fold of recorded events: each is checked, applied and checked again, as in the live run."""

from __future__ import annotations

from collections.abc import Sequence

from kvlife.config import compile_layout, refuse_beyond_memory, with_pages
from kvlife.errors import ConfigError, EventError
from kvlife.events import Recorded, Resized, Violated, check_structure
from kvlife.invariants import Checker, Finding
from kvlife.ledger import Change, Ledger, derive
from kvlife.replay.history.touches import rows_naming
from kvlife.replay.replaying.outcome import MAX_KEPT, Difference, Found

# Events that are looked at before anything else is done with them.
_RARE = (Resized, Violated)


class Fold:
    """A ledger, a checker and a position, moved on by groups of recorded events.

    The order is the live observer's: guard, apply, post-check, and an audit where one is due. A
    violation under the policy raise ends the fold, before its event is applied where a guard found
    it. The header names the policies; where it is silent about one (it is not `declared`), the fold
    goes on where the log does.

    `ended` says that the run is over, `stopped` that the replay ended it and not the log, and
    `digest` is that of the state where the log ended it.
    """

    def __init__(
        self, ledger: Ledger, checker: Checker, declared: frozenset[str] = frozenset()
    ) -> None:
        """Start from the state of `ledger`."""
        self.checker = checker
        self.declared = declared
        self.num_events = 0
        self.found: list[Found] = []
        self.differences: list[Difference] = []
        self.notes: list[str] = []
        self.ended = False
        self.stopped = False
        self.digest: int | None = None
        self._here: list[str] = []
        self._went_on = False
        self.ledger = ledger
        # The log's reader holds events to the pools as they are at the start, and grow. Where they
        # shrink, or may have another size than the reader knows, they are held to that here.
        self._checks_structure = ledger.layout != compile_layout(ledger.config)

    def start_from(self, ledger: Ledger) -> None:
        """Go on from another state: a snapshot behind a hole, or one that this state is not."""
        self.ledger = ledger
        self._checks_structure = True

    def group(self, group: Sequence[Recorded], recorded: Violated | None, *, went_on: bool) -> bool:
        """Fold one group, and say whether the run goes on behind it.

        `recorded` is what the log itself says was violated in this group, and ended the run;
        `went_on` that the log shows the run to have gone on behind the group.
        Raises `EventError`, naming the seq, where an event does not fit the pools.
        """
        ledger, checker = self.ledger, self.checker
        last = -1 if recorded is None else recorded.seq
        self._here.clear()
        self._went_on = went_on
        for item in group:
            event, seq = item.event, item.seq
            if self._checks_structure or type(event) in _RARE:
                self._look_at(item)
            change = derive(ledger, event)
            found = checker.guard(ledger, event, change, seq)
            if found is not None and self._take_up(found, item, recorded, change):
                return False
            if seq == last and recorded is not None and not recorded.applied:
                self._end_as(recorded, item.step)
                if not self._goes_on(recorded):
                    return False
            ledger.apply(event, seq, item.time_ns, change)
            self.num_events += 1
            found = checker.post(ledger, event, change, seq)
            if found is not None and self._take_up(found, item, recorded):
                return False
            if checker.due(seq, item.step, event) and self._audit(item, recorded):
                return False
            if seq == last and recorded is not None and recorded.applied:
                self._look_closer(recorded, item.step)
                self._end_as(recorded, item.step)
                if not self._goes_on(recorded):
                    return False
        return not self.ended

    def audit(self, step: int, *, went_on: bool) -> None:
        """Recount the whole state at the end of the log."""
        for found in self.checker.audit(self.ledger, idle=self.ledger.is_idle):
            self._keep(found, step, applied=True)
            if self._must_stop(found.id, went_on=went_on):
                self.ended = self.stopped = True
                return

    def ended_by(self, recorded: Violated, step: int) -> None:
        """The log ends with a violation of an event before this fold's first."""
        self._here.clear()
        self._look_closer(recorded, step)
        self._end_as(recorded, step)

    def _take_up(
        self,
        found: Finding,
        item: Recorded,
        recorded: Violated | None,
        change: Change | None = None,
    ) -> bool:
        """Keep a finding; True where it ends the fold. A guard's comes with the change."""
        applied = change is None
        rows = () if change is None else rows_naming(self.ledger, change, found.evidence)
        if recorded is not None and recorded.seq == item.seq:
            stops = self._must_stop(found.id, went_on=False)
            # What the run applied before it found fault is applied here too.
            stops = stops and (applied or not recorded.applied)
            self._keep(found, item.step, applied=applied or not stops, rows=rows)
            if stops:
                self._end_as(recorded, item.step)
            return stops
        stops = self._must_stop(found.id, went_on=recorded is not None or self._went_on)
        self._keep(found, item.step, applied=applied or not stops, rows=rows)
        if stops:
            self.ended = self.stopped = True
        return stops

    def _must_stop(self, name: str, *, went_on: bool) -> bool:
        if self.checker.policy_of(name) != "raise":
            return False
        return name in self.declared or not went_on

    def _keep(
        self, found: Finding, step: int, *, applied: bool, rows: tuple[int, ...] = ()
    ) -> None:
        self._here.append(found.id)
        if len(self.found) < MAX_KEPT:
            self.found.append(Found.of(found, step, applied=applied, rows=rows))

    def _audit(self, item: Recorded, recorded: Violated | None) -> bool:
        return any(
            self._take_up(found, item, recorded) for found in self.checker.audit(self.ledger)
        )

    def _look_closer(self, recorded: Violated, step: int) -> None:
        """What the run found in an audit of its own, an audit finds here."""
        if recorded.invariant not in self._here and self._looks_for(recorded.invariant):
            for found in self.checker.audit(self.ledger, idle=self.ledger.is_idle):
                if found.id not in self._here:
                    self._keep(found, step, applied=True)

    def _end_as(self, recorded: Violated, step: int) -> None:
        """The run ended here: hold what was found against what it recorded."""
        self.ended = True
        self.digest = self.ledger.digest()
        if recorded.invariant in self._here:
            return
        if not self._take_over(recorded, step):
            self._differ(recorded, "recorded as the end of the run")

    def _take_over(self, recorded: Violated, step: int) -> bool:
        """Keep what the run found where no replay can look; whether there was such a thing."""
        unseen = {inv.id: inv.why_not for inv in self.checker.catalogue if not inv.built}
        if recorded.invariant not in unseen:
            return False
        why = f"the run itself found this, a replay cannot: {unseen[recorded.invariant]}"
        found = self.checker.note(recorded.invariant, recorded.seq, {"why": why})
        if found is not None:
            self._keep(found, step, applied=recorded.applied)
        return found is not None

    def _differ(self, recorded: Violated, how: str) -> None:
        name, seq = recorded.invariant, recorded.seq
        if self._looks_for(name):
            instead = f"; it finds {', '.join(self._here)}" if self._here else ""
            text = f"{name} at seq {seq}, {how}, is not found by the replay{instead}"
            self.differences.append(Difference(kind="violation", seq=seq, text=text))
        else:
            self.notes.append(f"{name} at seq {seq}, {how}, was not looked for{self._why(name)}")

    def _why(self, name: str) -> str:
        """Why a replay looks for no violation of a kind, where that is no choice of its user's."""
        known = (inv for inv in self.checker.catalogue if inv.id == name and not inv.built)
        return next((f": {inv.why_not}" for inv in known), "")

    def _looks_for(self, name: str) -> bool:
        if self.checker.level == "off" or name in self.checker.ignored:
            return False
        return any(known.id == name and known.built for known in self.checker.catalogue)

    def _goes_on(self, recorded: Violated) -> bool:
        """Whether the rest of a group that ended the run is folded nevertheless."""
        return bool(self._here) and self.checker.policy_of(recorded.invariant) != "raise"

    def _look_at(self, item: Recorded) -> None:
        """Refuse an event that does not fit the pools as they are by now."""
        recorded = item.event
        if isinstance(recorded, Violated) and not any(
            found.id == recorded.invariant and found.seq == recorded.seq for found in self.found
        ):
            self._differ(recorded, f"recorded at seq {item.seq}, where the run goes on")
        try:
            check_structure(item.event, self.ledger.layout)
            if isinstance(item.event, Resized):
                self._checks_structure = True
                refuse_beyond_memory(
                    with_pages(self.ledger.layout, {item.event.space: item.event.num_pages})
                )
        except (EventError, ConfigError) as error:
            raise EventError(f"seq {item.seq}: {error}") from error
