"""`LifecycleMachine`: random lives of requests, given to whatever stands behind an adapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvlife.testing.adapter import (
    Aborts,
    Allocator,
    Evicts,
    Extends,
    Forks,
    Pins,
    Preempts,
    Publishes,
    Resets,
    RollsBack,
)
from kvlife.testing.extra import stateful
from kvlife.testing.extra import strategies as st
from kvlife.testing.fuzz_run import MAX_LIVE, FuzzRun
from kvlife.testing.strategies import appended_tokens, token_lists

_machine: st.SearchStrategy[Any] = st.runner()  # Any: Hypothesis does not know the machine's class


def _of(choose: Callable[[Any], st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """A strategy that depends on where the machine is."""
    return _machine.flatmap(choose)


_LIVE = _of(lambda machine: st.sampled_from(list(machine.tokens)))
_TOKENS = _of(lambda machine: token_lists(machine.page_size))


def _can(verb: type, *needs: str) -> Callable[[Any], bool]:
    """Whether the adapter has a verb, and the machine has something of each kind it needs."""
    return lambda machine: (
        isinstance(machine.adapter, verb) and all(getattr(machine, need) for need in needs)
    )


class LifecycleMachine(FuzzRun):
    """Gives one allocator the verbs that its adapter has, while an observer watches.

    `fuzz` and `find` make the subclass of one adapter; see `FuzzRun` for what it can be given.
    """

    @stateful.initialize(
        page_size=_of(lambda machine: st.sampled_from(machine.page_sizes)),
        num_pages=st.integers(2, 12),
    )
    def begin(self, page_size: int, num_pages: int) -> None:
        """Make the allocator, with `num_pages - 1` pages to hand out, and its observer."""
        self._make(page_size, num_pages)

    # -- the verbs -------------------------------------------------------------------------

    @stateful.precondition(lambda machine: len(machine.tokens) < MAX_LIVE)
    @stateful.rule(
        rid=_of(lambda machine: st.sampled_from([machine.new_rid(), *machine.waiting])),
        tokens=_TOKENS,
    )
    def admit(self, rid: str, tokens: list[int]) -> None:
        """Begin a request, or bring a preempted one back."""
        hits = [0]
        if self._do(lambda: hits.append(self._verbs.admit(rid, list(tokens)) or 0)):
            self._begin(rid, tokens)
            self._tell("admit", rid, hit_len=hits[-1])

    @stateful.precondition(_can(Extends, "tokens"))
    @stateful.rule(rid=_LIVE, tokens=_of(lambda machine: appended_tokens(machine.page_size)))
    def extend(self, rid: str, tokens: list[int]) -> None:
        """Append tokens to a request."""
        if self._do(lambda: self._verbs.extend(rid, list(tokens))):
            self.tokens[rid] = self.tokens[rid] + tokens
            self._tell("extend", rid)

    @stateful.precondition(_can(Publishes, "tokens"))
    @stateful.rule(rid=_LIVE)
    def publish(self, rid: str) -> None:
        """Let others share what a request has."""
        if self._do(lambda: self._verbs.publish(rid)):
            self._tell("publish", rid)

    @stateful.precondition(_can(RollsBack, "tokens"))
    @stateful.rule(rid=_LIVE, num_tokens=st.integers(1, 4))
    def roll_back(self, rid: str, num_tokens: int) -> None:
        """Cut tokens off a request's end, as far as they are not published; one stays."""
        row = self.observer.ledger.record(rid)
        assert row is not None  # it is live
        before = self.tokens[rid]
        length = max(len(before) - num_tokens, row.cache_protected_len, 1)
        if length < len(before) and self._do(lambda: self._verbs.roll_back(rid, length)):
            self.tokens[rid] = before[:length]
            self._tell("roll_back", rid)

    @stateful.precondition(lambda machine: len(machine.tokens) < MAX_LIVE)
    @stateful.precondition(_can(Forks, "tokens"))
    @stateful.rule(rid=_LIVE, child=_of(lambda machine: st.just(machine.new_rid())))
    def fork(self, rid: str, child: str) -> None:
        """Split a request in two."""
        if self._do(lambda: self._verbs.fork(rid, child)):
            self._begin(child, self.tokens[rid])
            self._tell("fork", child, parent=rid)

    @stateful.precondition(_can(Allocator, "tokens"))
    @stateful.rule(rid=_LIVE)
    def free(self, rid: str) -> None:
        """End a request."""
        self._end("free", rid, self._verbs.free)

    @stateful.precondition(_can(Aborts, "tokens"))
    @stateful.rule(rid=_LIVE)
    def abort(self, rid: str) -> None:
        """End a request by the other way."""
        self._end("abort", rid, self._verbs.abort)

    @stateful.precondition(_can(Preempts, "tokens"))
    @stateful.rule(rid=_LIVE)
    def preempt(self, rid: str) -> None:
        """Take a request's pages away; it may come back."""
        self._end("preempt", rid, self._verbs.preempt)
        if rid not in self.tokens:
            self.waiting[rid] = None

    @stateful.precondition(_can(Evicts))
    @stateful.rule(num_pages=st.integers(1, 4))
    def evict(self, num_pages: int) -> None:
        """Have cached pages given back."""
        if self._do(lambda: self._verbs.evict(num_pages)):
            self._tell("evict")

    @stateful.precondition(_can(Resets))
    @stateful.rule()
    def reset(self) -> None:
        """Have the cache dropped; an allocator may refuse while something is held."""
        if self._do(self._verbs.reset):
            self._tell("reset")

    @stateful.precondition(_can(Pins, "tokens"))
    @stateful.rule(rid=_LIVE, pin_id=_of(lambda machine: st.just(machine.new_pin())))
    def pin(self, pin_id: str, rid: str) -> None:
        """A reader outside begins."""
        if self._do(lambda: self._verbs.pin(pin_id, rid)):
            self.pins[pin_id] = None
            self._num_pins += 1
            self._tell("pin", rid, pin_id=pin_id)

    @stateful.precondition(_can(Pins, "pins"))
    @stateful.rule(pin_id=_of(lambda machine: st.sampled_from(list(machine.pins))))
    def unpin(self, pin_id: str) -> None:
        """The reader is done."""
        if self._do(lambda: self._verbs.unpin(pin_id)):
            del self.pins[pin_id]
            self._tell("unpin", pin_id=pin_id)
