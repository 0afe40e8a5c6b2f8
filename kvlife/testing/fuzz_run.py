"""One run of a fuzzed allocator: what is live, who watches, and what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Self, cast

from kvlife.config import PoolConfig
from kvlife.engine import Observer
from kvlife.errors import ConfigError
from kvlife.testing.adapter import (
    VERBS,
    Allocator,
    EveryVerb,
    ShowsTables,
    WatchesItself,
    refusals_of,
)
from kvlife.testing.deed import Deed
from kvlife.testing.extra import stateful
from kvlife.testing.memory_log import MemoryLog
from kvlife.testing.program import Call, Program
from kvlife.testing.strategies import PAGE_SIZES
from kvlife.testing.watch import ContractBroken, Watch

MAX_LIVE = 4


class FuzzRun(stateful.RuleBasedStateMachine):
    """What the rules of `LifecycleMachine` stand on.

    `adapter_type` makes the adapter of a run from its `PoolConfig` (and `log` and `clock`, where
    the adapter watches itself); `page_sizes` are those that it can be given. `failing` holds
    the program of the last run that failed.
    """

    adapter_type: ClassVar[Callable[..., Allocator]]
    page_sizes: ClassVar[tuple[int, ...]] = PAGE_SIZES
    failing: ClassVar[list[Program]] = []

    def __init__(self) -> None:
        """Nothing is made before `begin`."""
        super().__init__()
        self.calls: list[Call] = []
        self.tokens: dict[str, list[int]] = {}
        self.waiting: dict[str, None] = {}
        self.kept: dict[str, list[int]] = {}
        self.pins: dict[str, None] = {}
        self.adapter: Allocator | None = None
        self.able: frozenset[type] = frozenset()
        self.page_size = 0
        self.log = MemoryLog()
        self._names: set[str] = set()
        self._failed = False
        self._time_ns = 0

    def _make(self, page_size: int, num_pages: int) -> None:
        self.page_size = page_size
        make = type(self).adapter_type
        watches_itself = hasattr(make, "observer")
        config = PoolConfig(
            page_size=page_size,
            num_pages=num_pages,
            max_requests=MAX_LIVE,
            max_context_len=page_size * num_pages,
            # Whether two pages may hold the same is the allocator's own business.
            duplicates=not watches_itself,
            host_pages=num_pages if hasattr(make, "back_up") else 0,
        )
        self._watch: Watch | None = None
        if watches_itself:
            adapter = make(config, log=self.log, clock=self._clock)
            assert isinstance(adapter, WatchesItself)  # it has the attribute
            self.observer = adapter.observer
        else:
            adapter = make(config)
            if not isinstance(adapter, ShowsTables):
                raise ConfigError(f"{type(adapter).__name__} shows no books, and has no observer")
            self.observer = Observer(config, log=self.log, clock=self._clock)
            self._watch = Watch(adapter, config, self.observer)
        self.adapter = adapter
        self.able = frozenset(verb for verb in VERBS if isinstance(adapter, verb))

    def _clock(self) -> int:
        self._time_ns += 1
        return self._time_ns

    def new_rid(self) -> str:
        """The id of the next request."""
        return self._new("r")

    def new_pin(self) -> str:
        """The id of the next pin."""
        return self._new("p")

    def _new(self, kind: str) -> str:
        return f"{kind}{1 + sum(name.startswith(kind) for name in self._names)}"

    # -- running a program again -----------------------------------------------------------

    @classmethod
    def run(cls, program: Program) -> tuple[Self, Exception | None]:
        """Run a program anew; returns what it ran on, and what failed.

        It ends at a call that a run could not make where it then is, as after one was taken out.
        """
        machine = cls()
        try:
            for call in program:
                if not machine._allows(call):
                    return machine, None
                getattr(machine, call.verb)(**call.args)
            machine.teardown()
        except Exception as error:  # noqa: BLE001  # whatever an allocator fails with is a find
            return machine, error
        return machine, None

    def _allows(self, call: Call) -> bool:
        """Whether the adapter has the verb, and the call names what is live, or new, as it must."""
        if self.adapter is not None and not any(call.verb in vars(verb) for verb in self.able):
            return False
        rid, child, pin_id = (str(call.args.get(name, "")) for name in ("rid", "child", "pin_id"))
        room = len(self.tokens) < MAX_LIVE
        match call.verb:
            case "begin":
                return self.adapter is None
            case "admit":
                return room and (rid in self.waiting or rid not in self._names)
            case "fork":
                return room and rid in self.tokens and child not in self._names
            case "pin":
                return rid in self.tokens and pin_id not in self._names
            case "unpin":
                return pin_id in self.pins
            case _:
                return not rid or rid in self.tokens

    # -- running a verb --------------------------------------------------------------------

    @property
    def _verbs(self) -> EveryVerb:
        # Cast: a precondition of each rule asks whether the adapter has the verb.
        return cast("EveryVerb", self.adapter)

    def _do(self, call: Callable[[], object]) -> bool:
        """Run a verb; whether it went through. One that is refused must have changed nothing."""
        state = self._state()
        try:
            call()
        except refusals_of(self.adapter) as refusal:
            why = str(refusal)
            self._or_fail(lambda: self._check_refused(state, why))
            return False
        except Exception:
            self._fail()
            raise
        return True

    def _state(self) -> tuple[int, int]:
        """What a refusal must leave as it was, of an adapter that watches itself."""
        if self._watch is not None:
            return 0, 0
        return self.observer.ledger.digest(), self.observer.next_seq

    def _check_refused(self, state: tuple[int, int], refusal: str) -> None:
        if self._watch is not None:
            self._watch.tell_refusal(refusal)
        elif self._state() != state:
            raise ContractBroken(f"refused ({refusal}), and yet something has changed")

    def _tell(
        self,
        verb: str,
        rid: str | None = None,
        *,
        hit_len: int = 0,
        parent: str | None = None,
        pin_id: str | None = None,
    ) -> None:
        if pin_id is not None:
            self._names.add(pin_id)
        watch, held = self._watch, self.tokens.get(rid or "")
        if watch is None:
            return
        deed = Deed(
            verb=verb,
            rid=rid,
            tokens=None if held is None else tuple(held),
            hit_len=hit_len,
            parent=parent,
            pin_id=pin_id,
        )
        self._or_fail(lambda: watch.tell(deed))

    def _begin(self, rid: str, tokens: list[int]) -> None:
        self.waiting.pop(rid, None)
        self.kept.pop(rid, None)
        self._names.add(rid)
        self.tokens[rid] = list(tokens)

    def _end(self, verb: str, rid: str, call: Callable[[str], object]) -> None:
        if self._do(lambda: call(rid)):
            del self.tokens[rid]
            self._tell(verb, rid)

    # -- the end ---------------------------------------------------------------------------

    def teardown(self) -> None:
        """Nothing may be held once all pins and requests have ended; then a last audit."""
        if self.adapter is None or self._failed:
            return
        if not self.tokens and not self.pins:
            self._or_fail(lambda: self.observer.mark("all requests have ended", idle=True))
        self._or_fail(self.observer.close)

    def _or_fail(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception:
            self._fail()
            raise

    def _fail(self) -> None:
        self._failed = True
        type(self).failing[:] = [tuple(self.calls)]
