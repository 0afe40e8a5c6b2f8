"""The observer: ledger, checker, log and pools, driven by facts, deciding nothing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter_ns
from typing import TYPE_CHECKING

from kvlife import __version__
from kvlife.config import PoolConfig, compile_layout, refuse_beyond_memory, with_pages
from kvlife.engine.stats import Stats, collect_stats
from kvlife.errors import (
    ConfigError,
    EngineClosed,
    EventError,
    InvariantViolation,
    LogError,
    WrongThread,
)
from kvlife.events import Event, Marked, Resized, Violated, check_structure, own_arrays
from kvlife.invariants import Checker, Finding
from kvlife.ledger import Change, Ledger, derive
from kvlife.log import RunHeader

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from kvlife.log import LogWriter
    from kvlife.pools import DeviceFinding, Pools
    from kvlife.prefix import PrefixIndex

# Counts forks in this process: a child finds a number other than its engine was made under.
forks = [0]
os.register_at_fork(after_in_child=lambda: forks.__setitem__(0, forks[0] + 1))


class Observer:
    """Folds facts into a ledger, under a checker, into a log; for allocators of another making.

    `config` describes the pools; `log`, `checker` and `pools` may be left out (a checker that
    checks every event is the default; `Checker(level="off")` checks nothing). `clock` gives the
    time in ns that stands beside each event. `group`, `rank` and `world_size` name the engine
    among those of one model. `pools` are attached before anything is written, and follow every
    event. One thread drives it.
    """

    def __init__(
        self,
        config: PoolConfig,
        *,
        log: LogWriter | None = None,
        checker: Checker | None = None,
        pools: Pools | None = None,
        clock: Callable[[], int] = time.time_ns,
        group: str = "",
        rank: int = 0,
        world_size: int = 1,
        key_fingerprint: str = "",
    ) -> None:
        """Start a run; raises `ConfigError` or `LogError` before anything is written."""
        refuse_beyond_memory(compile_layout(config))
        self.config = config
        self.ledger = Ledger(config)
        self.checker = Checker() if checker is None else checker
        self.step = 0
        self.next_seq = 0
        self.check_ns = 0
        self.log_ns = 0
        self._log = log
        self._pools = pools
        if pools is not None:
            pools.attach(self.ledger)
            self.checker.attach(pools.checks)
        self._clock = clock
        self._closed = ""
        # Whether the log ended the run, and still has to be closed.
        self._unsealed = False
        self._index_due = False
        self._unchecked = self.checker.level == "off"
        self._thread = threading.get_ident()
        self._fork = forks[0]
        if log is not None:
            self.ledger.prepare_snapshots()
            log.start(
                RunHeader(
                    config=config,
                    policies={name: self.checker.policy_of(name) for name in self.checker.ids},
                    level=self.checker.level,
                    key_fingerprint=key_fingerprint,
                    engine_version=__version__,
                    group=group,
                    rank=rank,
                    world_size=world_size,
                    created_ns=clock(),
                )
            )

    def __enter__(self) -> Self:
        """Use as a context: the run is closed at its end."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Close the run; an error on its way out is not covered by one from closing."""
        if kind is None:
            self.close()
        elif not self._closed or self._unsealed:
            self._end("an error left the engine's context")

    @property
    def index(self) -> PrefixIndex | None:
        """The prefix index that audits compare with the ledger; an observer has none."""
        return None

    @property
    def log(self) -> LogWriter | None:
        """The log that is written, if any."""
        return self._log

    @property
    def closed(self) -> bool:
        """Whether the run has ended."""
        return bool(self._closed)

    def observe(self, *events: Event) -> None:
        """Report facts, as one group: all stand in the log, or none.

        Arrays that the caller can still write into are copied. Raises `EventError` for an
        ill-formed event (then nothing is recorded),
        `InvariantViolation` under the policy raise, `LogFull`, `EngineClosed`, `WrongThread`.
        """
        self._enter()
        self._check_facts(events)
        facts = [own_arrays(event) for event in events]
        first = self.next_seq
        try:
            if facts:
                self._record(facts)
        except BaseException as error:
            self._break_off(first, error)
            raise

    def _check_facts(self, events: Sequence[Event]) -> None:
        """Each is well-formed for the pools as those before it in the group leave them."""
        layout = self.ledger.layout
        for event in events:
            check_structure(event, layout)
            if isinstance(event, Violated):
                raise EventError("Violated is written by the observer itself: report the facts")
            if isinstance(event, Resized):
                # A shrink that would drop pages in use leaves more than it names, never fewer.
                layout = with_pages(layout, {event.space: max(event.num_pages, 1)})
                try:
                    refuse_beyond_memory(layout)
                    if self._pools is not None:
                        self._pools.refuse_layout(layout)
                except ConfigError as error:
                    raise EventError(f"Resized.num_pages: {error}") from error

    def mark(self, text: str, *, idle: bool = False) -> None:
        """Write a note; an idle mark says that nothing but cache should be held now."""
        self.observe(Marked(text, idle))

    def audit(self) -> list[Finding]:
        """Recount the whole state now; what is found goes the way of the policy."""
        self._enter()
        return [*self._audit(self.index), *self._audit_pools(wait=True)]

    def stats(self) -> Stats:
        """Counts of everything, in one frozen record."""
        return collect_stats(self)

    def close(self) -> None:
        """End the run: a last audit, the final digest, the log sealed; again, it does nothing."""
        if self._unsealed:
            self._end(self._closed)
        if self._closed:
            return
        self._enter()
        self._audit(self.index, idle=self.ledger.is_idle)
        self._audit_pools(wait=True)
        if self._pools is not None:
            self._record_notes(wait=True)
        self._end("the engine was closed")

    def _end(self, why: str, *, whole: bool = True) -> None:
        """End the run; where the log has events that this state has not, it gets no digest."""
        self._closed = self._closed or why
        self._unsealed = False
        if self._log is not None:
            self._log.close(self.ledger.digest() if whole else None)

    def _break_off(self, first: int, error: BaseException) -> None:
        """End the run where an error, or an interrupt, left events behind that are half applied.

        `first` is the seq before the command. The log is closed without a digest: it has the
        events, and this state may not.
        """
        log = self._log
        if self._closed or (first == self.next_seq and (log is None or first == log.next_seq)):
            return
        self._end(
            f"{type(error).__name__} broke a command off at seq {first}: {error}", whole=False
        )

    def _enter(self) -> None:
        if self._fork != forks[0]:
            raise WrongThread("this engine belongs to the parent process: make one in the child")
        if threading.get_ident() != self._thread:
            raise WrongThread(
                f"thread {threading.get_ident()} called, thread {self._thread} drives this engine:"
                " call from there (post_unpin alone may be called from any thread)"
            )
        if self._closed:
            raise EngineClosed(f"the run has ended: {self._closed}; start a new engine")

    def _record(self, events: Sequence[Event], changes: Sequence[Change | None] = ()) -> None:
        """Append a group to the log, then check and fold each event."""
        if self._index_due:
            self._index_due = False
            self._audit(self.index)
        first, now = self.next_seq, 0
        if self._log is not None:
            now = self._clock()
            begun = perf_counter_ns()
            try:
                self._log.append(first, self.step, now, events)
            except LogError as error:
                self._closed = f"the log failed: {error}"
                self._unsealed = True
                raise
            finally:
                self.log_ns += perf_counter_ns() - begun
        self.next_seq = first + len(events)
        if len(events) == 1:
            self._fold(events[0], first, now, changes[0] if changes else None)
        else:
            for offset, event in enumerate(events):
                self._fold(event, first + offset, now, changes[offset] if changes else None)
        if self._pools is not None:
            self._record_notes()
        if self._log is not None and self._log.wants_snapshot and not self._closed:
            self._log.snapshot(self.ledger.snapshot())

    def _fold(self, event: Event, seq: int, now: int, change: Change | None) -> None:
        ledger, checker = self.ledger, self.checker
        if self._unchecked:
            change = ledger.apply(event, seq, now, change)
            if self._pools is not None:
                self._apply_to_pools(event, change, seq)
            return
        if change is None:
            change = derive(ledger, event)
        begun = perf_counter_ns()
        found = checker.guard(ledger, event, change, seq)
        self.check_ns += perf_counter_ns() - begun
        if found is not None:
            self._handle(found, event, applied=False)
        ledger.apply(event, seq, now, change)
        if event.__class__ in checker.post_events:
            begun = perf_counter_ns()
            found = checker.post(ledger, event, change, seq)
            self.check_ns += perf_counter_ns() - begun
            if found is not None:
                self._handle(found, event, applied=True)
        if self._pools is not None:
            self._apply_to_pools(event, change, seq)
        if checker.due(seq, self.step, event):
            # The prefix index follows once the whole group is folded, so it waits for the next one.
            self._audit(None)
            self._audit_pools(wait=False)
            self._index_due = self.index is not None

    def _record_notes(self, *, wait: bool = False) -> None:
        """What the pools want to have in the log, as a group of its own."""
        assert self._pools is not None  # the caller looked
        try:
            notes = self._pools.notes(wait=wait)
        except Exception as error:
            self._fail_pools(error)
            raise
        if notes:
            # The prefix index follows the group that was just folded when its command is done.
            due, self._index_due = self._index_due, False
            self._record(notes)
            self._index_due |= due

    def _apply_to_pools(self, event: Event, change: Change, seq: int) -> None:
        assert self._pools is not None  # the caller looked
        try:
            self._pools.apply(event, change, seq)
            found = self._pools.drain()
        except Exception as error:
            self._fail_pools(error)
            raise
        if found:
            self._report(found)

    def _audit_pools(self, *, wait: bool) -> list[Finding]:
        """Hold the device against the ledger; without `wait`, a later step may have the answer."""
        if self._pools is None or self._unchecked:
            return []
        try:
            self._pools.audit()
            found = self._pools.drain(wait=wait)
        except Exception as error:
            self._fail_pools(error)
            raise
        return self._report(found)

    def _fail_pools(self, error: Exception) -> None:
        whole = self.ledger.next_seq == self.next_seq
        self._end(f"the pools failed: {error!r}", whole=whole)

    def _report(self, found: Sequence[DeviceFinding]) -> list[Finding]:
        """What was found on the device goes the way of the policy."""
        findings = []
        for one in found:
            if one.is_echo and self.checker.found_at(one.seq):
                continue
            finding = self.checker.note(one.invariant, one.seq, one.evidence)
            if finding is not None:
                findings.append(finding)
                self._handle(finding, None, applied=True)
        return findings

    def _audit(self, index: PrefixIndex | None, *, idle: bool = False) -> list[Finding]:
        begun = perf_counter_ns()
        findings = self.checker.audit(self.ledger, index, idle=idle)
        self.check_ns += perf_counter_ns() - begun
        for found in findings:
            self._handle(found, found.event, applied=True)
        return findings

    def _handle(self, found: Finding, event: object, *, applied: bool) -> None:
        """Under raise, a violation ends the log and the run; else it stands in the stats."""
        if self.checker.policy_of(found.id) != "raise":
            return
        why = f"{found.id} was broken at seq {found.seq}"
        if self._log is not None:
            mark = Violated(found.seq, found.id, applied)
            # A disk that is full must not hide the bug that was found.
            with suppress(LogError):
                self._log.append(self.next_seq, self.step, self._clock(), [mark])
        self._end(why)
        raise InvariantViolation(found.id, found.seq, event, found.evidence, applied=applied)
