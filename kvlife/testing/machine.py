"""`LifecycleMachine`: random lives of requests, given to whatever stands behind an adapter."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

from kvlife.testing.adapter import (
    Aborts,
    Allocator,
    BacksUp,
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
from kvlife.testing.program import Call
from kvlife.testing.strategies import appended_tokens, token_lists

Rule = TypeVar("Rule", bound=Callable[..., None])


def _of(choose: Callable[[Any], st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """A strategy that depends on where the machine is (Any: Hypothesis does not know its class)."""
    return st.runner().flatmap(choose)


_LIVE = _of(lambda machine: st.sampled_from(list(machine.tokens)))
_NEW_OR_WAITING = _of(lambda machine: st.sampled_from([machine.new_rid(), *machine.waiting]))
_PROMPT = _of(lambda machine: token_lists(machine.page_size))
_MORE = _of(lambda machine: appended_tokens(machine.page_size))


def _recorded(rule: Rule) -> Rule:
    """Notes the call before it is made, so that the program can be told and run again."""
    names = [name for name in signature(rule).parameters if name != "self"]

    @wraps(rule)
    def noted(machine: LifecycleMachine, **args: Any) -> None:  # Any: as the rule has them
        machine.calls.append(Call(rule.__name__, {name: args[name] for name in names}))
        rule(machine, **args)

    return noted  # type: ignore[return-value]  # it is called as the rule is


def _verb(
    protocol: type,
    *needs: str,
    room: bool = False,
    **strategies: Any,  # Any: strategies, which Hypothesis tells from its other arguments by name
) -> Callable[[Rule], Rule]:
    """A rule for adapters that have the verb, while the machine has something of all it needs."""

    def is_possible(machine: LifecycleMachine) -> bool:
        return (
            protocol in machine.able
            and all(getattr(machine, need) for need in needs)
            and not (room and len(machine.tokens) == MAX_LIVE)
        )

    def mark(rule: Rule) -> Rule:
        # Hypothesis types its decorator only where each strategy is written out.
        made = stateful.rule(**strategies)(_recorded(rule))  # type: ignore[no-untyped-call]
        marked: Rule = stateful.precondition(is_possible)(made)
        return marked

    return mark


class LifecycleMachine(FuzzRun):
    """Gives one allocator the verbs that its adapter has, while an observer watches.

    `fuzz` and `find` make the subclass of one adapter; see `FuzzRun` for what it can be given.
    """

    @stateful.initialize(
        page_size=_of(lambda machine: st.sampled_from(machine.page_sizes)),
        num_pages=st.integers(2, 12),
    )
    @_recorded
    def begin(self, page_size: int, num_pages: int) -> None:
        """Make the allocator, with `num_pages - 1` pages to hand out, and its observer."""
        self._make(page_size, num_pages)

    @_verb(Allocator, room=True, rid=_NEW_OR_WAITING, tokens=_PROMPT)
    def admit(self, rid: str, tokens: list[int]) -> None:
        """Begin a request, or bring a preempted one back; one that was kept has what it had."""
        hits, tokens = [0], [*self.kept.get(rid, ()), *tokens]
        if self._do(lambda: hits.append(self._verbs.admit(rid, list(tokens)) or 0)):
            self._begin(rid, tokens)
            self._tell("admit", rid, hit_len=hits[-1])

    @_verb(Extends, "tokens", rid=_LIVE, tokens=_MORE)
    def extend(self, rid: str, tokens: list[int]) -> None:
        """Append tokens to a request."""
        if self._do(lambda: self._verbs.extend(rid, list(tokens))):
            self.tokens[rid] = self.tokens[rid] + tokens
            self._tell("extend", rid)

    @_verb(Publishes, "tokens", rid=_LIVE)
    def publish(self, rid: str) -> None:
        """Let others share what a request has."""
        if self._do(lambda: self._verbs.publish(rid)):
            self._tell("publish", rid)

    @_verb(RollsBack, "tokens", rid=_LIVE, num_tokens=st.integers(1, 4))
    def roll_back(self, rid: str, num_tokens: int) -> None:
        """Cut tokens off a request's end, as far as they are not published; one stays."""
        record, before = self.observer.ledger.record(rid), self.tokens[rid]
        assert record is not None  # it is live
        length = max(len(before) - num_tokens, record.cache_protected_len, 1)
        if length < len(before) and self._do(lambda: self._verbs.roll_back(rid, length)):
            self.tokens[rid] = before[:length]
            self._tell("roll_back", rid)

    @_verb(
        Forks, "tokens", room=True, rid=_LIVE, child=_of(lambda machine: st.just(machine.new_rid()))
    )
    def fork(self, rid: str, child: str) -> None:
        """Split a request in two."""
        if self._do(lambda: self._verbs.fork(rid, child)):
            self._begin(child, self.tokens[rid])
            self._tell("fork", child, parent=rid)

    @_verb(Allocator, "tokens", rid=_LIVE)
    def free(self, rid: str) -> None:
        """End a request."""
        self._end("free", rid, self._verbs.free)

    @_verb(Aborts, "tokens", rid=_LIVE)
    def abort(self, rid: str) -> None:
        """End a request by the other way."""
        self._end("abort", rid, self._verbs.abort)

    @_verb(Preempts, "tokens", rid=_LIVE)
    def preempt(self, rid: str) -> None:
        """Take a request's pages away; it may come back."""
        self._end("preempt", rid, self._verbs.preempt)
        if rid not in self.tokens:
            self.waiting[rid] = None

    @_verb(Evicts, num_pages=st.integers(1, 4))
    def evict(self, num_pages: int) -> None:
        """Have cached pages given back."""
        if self._do(lambda: self._verbs.evict(num_pages)):
            self._tell("evict")

    @_verb(Resets)
    def reset(self) -> None:
        """Have the cache dropped; an allocator may refuse while something is held."""
        if self._do(self._verbs.reset):
            self._tell("reset")

    @_verb(Pins, "tokens", rid=_LIVE, pin_id=_of(lambda machine: st.just(machine.new_pin())))
    def pin(self, pin_id: str, rid: str) -> None:
        """A reader outside begins."""
        if self._do(lambda: self._verbs.pin(pin_id, rid)):
            self.pins[pin_id] = None
            self._tell("pin", rid, pin_id=pin_id)

    @_verb(Pins, "pins", pin_id=_of(lambda machine: st.sampled_from(list(machine.pins))))
    def unpin(self, pin_id: str) -> None:
        """The reader is done."""
        if self._do(lambda: self._verbs.unpin(pin_id)):
            del self.pins[pin_id]
            self._tell("unpin", pin_id=pin_id)


class BackingUpMachine(LifecycleMachine):
    """As `LifecycleMachine`, for allocators that keep what a request had and bring it back.

    A class of its own, so that the runs of all others are what they were.
    """

    @_verb(BacksUp, "tokens", rid=_LIVE)
    def back_up(self, rid: str) -> None:
        """Take a request's pages away, and keep what was in them; it may come back."""
        held = self.tokens[rid]
        self._end("back_up", rid, self._verbs.back_up)
        if rid not in self.tokens:
            self.waiting[rid], self.kept[rid] = None, held
