"""What a scheduler asks of an engine: lengths, pages, and refusals that change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kvlife.config import PoolConfig
from kvlife.errors import (
    BadArgument,
    BadLength,
    BadTokens,
    CommandRefused,
    DuplicateRequest,
    EngineClosed,
    LogFull,
    OutOfPages,
    OutOfRows,
    PinRefused,
    SessionBusy,
    StaleBatch,
    StepOrder,
    UnknownRequest,
    UnknownSession,
)
from kvlife.events import Evicted, Protected, Released
from kvlife.ledger import Ledger
from kvlife.log import LogWriter
from kvlife.testing.adapters import EngineAdapter
from kvlife.testing.conformance.contract import Contract
from kvlife.testing.memory_log import MemoryLog

_CONFIG = PoolConfig(page_size=4, num_pages=9, max_requests=3, max_context_len=40)
_TEN = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


class FillingLog(MemoryLog):
    """A log in memory that is full from when it is told so."""

    full = False

    def append(self, seq: int, step: int, time_ns: int, events: Any) -> None:  # Any: as above
        """Refuse, or keep."""
        if self.full:
            raise LogFull("no space is left, as a test has it")
        super().append(seq, step, time_ns, events)


class EngineConformance(Contract):
    """Does a binding do what `KvEngine` does? Subclass it, and define `engine`.

    The pool of most tests has pages of 4 tokens, 8 of them to hand out, and 3 rows.
    """

    def engine(self, config: PoolConfig, *, log: LogWriter, clock: Callable[[], int]) -> Any:
        """An engine with the commands of `KvEngine`, that writes to `log`; Any: a binding."""
        raise NotImplementedError(f"{type(self).__name__} defines no engine(config, log=, clock=)")

    def digest(self, engine: Any) -> int:  # Any: a binding
        """The digest of its state, as `Ledger.digest` defines it."""
        return int(engine.ledger.digest())

    def setUp(self) -> None:
        """Make an engine and its log."""
        super().setUp()
        self.log = FillingLog()
        self.kv = self.engine(_CONFIG, log=self.log, clock=lambda: 0)

    # -- refusals --------------------------------------------------------------------------

    def test_a_refused_command_changes_nothing(self) -> None:
        """Each wrong command is refused by its error; state and log are what they were."""
        self._fill("r1", _TEN)
        stale = self.kv.batch(["r1"])
        self.kv.abort("r1")
        self._fill("r1", _TEN)
        self._fill("r2", [7, 7])
        self.kv.session_save("s", "r2", 2)
        self.kv.dispatch(5, ["r1"])
        self.kv.pin("p", self._pages("r1")[:1], "copy")
        self._fill("r3", [5, 5])
        for error, command in self._wrong_commands(stale):
            before = (self.digest(self.kv), len(self.log.events()))
            with self.subTest(error=error.__name__), self.assertRaises(error):
                command()
            self.assertEqual((self.digest(self.kv), len(self.log.events())), before)

    def _wrong_commands(
        self, stale: Any
    ) -> list[tuple[type[CommandRefused], Callable[[], object]]]:  # Any: a binding's batch
        kv = self.kv
        return [
            (DuplicateRequest, lambda: kv.admit("r1", _TEN)),
            (OutOfRows, lambda: kv.admit("r4", _TEN)),
            (BadTokens, lambda: kv.admit("r4", [])),
            (BadTokens, lambda: kv.admit("r4", [-1])),
            (BadLength, lambda: kv.admit("r4", [1] * 41)),
            (DuplicateRequest, lambda: kv.resume("r1", _TEN)),
            (BadArgument, lambda: kv.resume("nobody", _TEN)),
            (UnknownRequest, lambda: kv.allocate(["nobody"], [4])),
            (BadArgument, lambda: kv.allocate(["r1", "r1"], [12, 12])),
            (BadLength, lambda: kv.allocate(["r1"], [9])),
            (BadLength, lambda: kv.allocate(["r1"], [41])),
            (BadLength, lambda: kv.allocate(["r1"], [-1])),
            (OutOfPages, lambda: kv.allocate(["r1", "r3"], [30, 30])),
            (BadLength, lambda: kv.commit(["r1"], [11])),
            (BadLength, lambda: kv.commit(["r1"], [9])),
            (BadLength, lambda: kv.roll_back(["r1"], [11])),
            (StaleBatch, lambda: kv.decode(stale)),
            (StaleBatch, lambda: kv.commit(stale)),
            (UnknownRequest, lambda: kv.protect("nobody", _TEN)),
            (UnknownRequest, lambda: kv.finish("nobody", _TEN)),
            (UnknownRequest, lambda: kv.retract("nobody")),
            (StepOrder, lambda: kv.dispatch(5, ["r1"])),
            (StepOrder, lambda: kv.settle(6)),
            (PinRefused, lambda: kv.pin("p", self._pages("r1"), "copy")),
            (PinRefused, lambda: kv.unpin("q")),
            (UnknownSession, lambda: kv.session_restore("t", "r9", 0)),
            (BadLength, lambda: kv.session_restore("s", "r9", 3)),
            (SessionBusy, lambda: kv.session_save("s", "r3", 2)),
            (CommandRefused, kv.flush),
            (CommandRefused, lambda: kv.resize(2)),
        ]

    def test_out_of_pages_says_what_there_is(self) -> None:
        """It names what was asked, what is free or cached, and who holds the rest."""
        self._fill("r1", _TEN)
        self.kv.finish("r1", _TEN)
        self._fill("r2", [5] * 9)
        self.kv.admit("r3", [6] * 40)
        with self.assertRaises(OutOfPages) as caught:
            self.kv.allocate(["r3"], [40])
        # Of 8 pages r2 holds 3, two of r1's were published and stay cached, 3 are free.
        error = caught.exception
        self.assertEqual((error.asked, error.free, error.evictable), (10, 3, 2))
        self.assertEqual(error.held, {"r2": 3})

    # -- lengths and pages -----------------------------------------------------------------

    def test_the_ladder_is_climbed_step_by_step(self) -> None:
        """Allocate, commit, protect and roll_back move the lengths that they are named after."""
        self.kv.admit("r1", _TEN)
        self.assertEqual(self._ladder("r1"), (0, 0, 0))
        self.kv.allocate(["r1"], [10])
        self.assertEqual(self._ladder("r1"), (0, 0, 10))
        self.kv.commit(["r1"], [9])
        self.assertEqual(self._ladder("r1"), (0, 9, 10))
        self.assertEqual(self.kv.protect("r1", _TEN), 8)
        self.assertEqual(self._ladder("r1"), (8, 9, 10))
        self.kv.decode(self.kv.batch(["r1"]))
        self.assertEqual(self._ladder("r1"), (8, 9, 11))
        self.kv.roll_back(["r1"], [8])
        self.assertEqual(self._ladder("r1"), (8, 8, 8))
        with self.assertRaises(BadLength):
            self.kv.roll_back(["r1"], [7])

    def test_slots_are_a_request_s_own(self) -> None:
        """Slots lie in pages that nobody else has, in the order of tokens, never in page 0."""
        slots = {}
        for rid in ("r1", "r2"):
            self.kv.admit(rid, _TEN)
            slots[rid] = np.asarray(self.kv.allocate([rid], [10])).tolist()
        pages = {rid: [slot // 4 for slot in got] for rid, got in slots.items()}
        for rid, got in slots.items():
            self.assertEqual([slot % 4 for slot in got], [n % 4 for n in range(10)])
            self.assertEqual(len(set(pages[rid])), 3)
        self.assertEqual(len({*pages["r1"], *pages["r2"]}), 6)
        self.assertNotIn(0, {*pages["r1"], *pages["r2"]})

    def test_a_prefix_is_found_in_whole_pages(self) -> None:
        """Of 10 published tokens 8 are found; of a prompt that is all there, all but a page."""
        self._fill("r1", _TEN)
        self.assertEqual(self.kv.finish("r1", _TEN), 8)
        other = self.kv.admit("r2", [*_TEN[:8], 99, 98])
        self.assertEqual((other.matched_len, other.prefix_len), (8, 8))
        whole = self.kv.admit("r3", _TEN[:8])
        self.assertEqual((whole.matched_len, whole.prefix_len), (8, 4))
        self.assertEqual(self.kv.match([*_TEN[:7], 99]).matched_len, 4)

    def test_cache_is_evicted_before_anyone_is_refused(self) -> None:
        """Where only cached pages are left, as many of them go as are needed."""
        self._fill("r1", [1] * 32)
        self.kv.finish("r1", [1] * 32)
        self._fill("r2", [2] * 12)
        evicted = [event for event in self.log.events() if isinstance(event, Evicted)]
        self.assertEqual([pages.size for event in evicted for pages in event.pages], [3])
        self.assertEqual(self.kv.match([1] * 32).matched_len, 20)

    def test_duplicates_give_way(self) -> None:
        """Of two requests with one prompt, the second publishes the first one's pages."""
        for rid in ("r1", "r2"):
            self._fill(rid, _TEN)
        for rid in ("r1", "r2"):
            self.kv.protect(rid, _TEN)
        self.assertEqual(self._pages("r1")[:2], self._pages("r2")[:2])
        self.assertEqual(self.kv.num_free(), 8 - 2 - 1 - 1)

    # -- what is in flight -----------------------------------------------------------------

    def test_pages_in_flight_wait_for_their_step(self) -> None:
        """What an aborted request has in flight is free when its last step has settled."""
        self._fill("r1", _TEN)
        self.kv.dispatch(1, ["r1"])
        self.kv.dispatch(2, ["r1"])
        self.kv.abort("r1")
        free = [self.kv.num_free()]
        for step in (1, 2):
            self.kv.settle(step)
            free.append(self.kv.num_free())
        self.assertEqual(free, [5, 5, 8])

    def test_only_what_has_settled_is_committed(self) -> None:
        """A commit without lengths goes up to what steps have settled."""
        self.kv.admit("r1", _TEN)
        self.kv.allocate(["r1"], [10])
        batch = self.kv.batch(["r1"])
        self.kv.dispatch(1, batch)
        self.kv.decode(batch)
        self.kv.settle(1)
        self.kv.commit(batch)
        self.assertEqual(self._ladder("r1"), (0, 10, 11))

    def test_a_pinned_page_is_not_used_again(self) -> None:
        """A page that is read from outside is not free before its pin is gone."""
        self._fill("r1", _TEN)
        self.kv.pin("p", self._pages("r1")[:2], "copy")
        self.kv.abort("r1")
        self.assertEqual(self.kv.num_free(), 6)
        self.kv.unpin("p")
        self.assertEqual(self.kv.num_free(), 8)

    # -- leaving and coming back -----------------------------------------------------------

    def test_a_retracted_request_comes_back(self) -> None:
        """What it published is found again; the rest is computed again."""
        self._fill("r1", _TEN)
        self.kv.protect("r1", _TEN)
        self.kv.retract("r1")
        self.assertEqual(self.kv.num_free(), 6)
        with self.assertRaises(DuplicateRequest):
            self.kv.admit("r1", _TEN)
        self.assertEqual(self.kv.resume("r1", _TEN).prefix_len, 8)
        self.assertEqual(self._ladder("r1"), (8, 8, 8))

    def test_a_session_keeps_its_row(self) -> None:
        """A turn ends with what the client has seen, the next begins there or before."""
        self._fill("r1", _TEN)
        self.kv.session_save("s", "r1", 9)
        turn = self.kv.session_restore("s", "r2", 6)
        self.assertEqual(turn.kept_len, 6)
        self.assertEqual(self._ladder("r2"), (0, 6, 6))
        self.kv.session_save("s", "r2", 6)
        self.kv.session_close("s")
        self.assertEqual(self.kv.num_free(), 8)

    def test_an_aborted_id_is_not_used(self) -> None:
        """An id that is aborted before it is admitted is refused later."""
        self.kv.abort("r1")
        with self.assertRaises(DuplicateRequest):
            self.kv.admit("r1", _TEN)

    # -- the log ---------------------------------------------------------------------------

    def test_a_command_is_one_group(self) -> None:
        """What `finish` publishes and lets go stands in one group."""
        self._fill("r1", _TEN)
        self.kv.finish("r1", _TEN)
        *_, last = self.log.groups
        self.assertEqual([type(event) for event in last[3]], [Protected, Released])

    def test_nothing_is_applied_that_is_not_in_the_log(self) -> None:
        """Where the log is full, the state is what it was, and the run has ended."""
        self._fill("r1", _TEN)
        before = self.digest(self.kv)
        self.log.full = True
        with self.assertRaises(LogFull):
            self.kv.finish("r1", _TEN)
        self.assertEqual(self.digest(self.kv), before)
        with self.assertRaises(EngineClosed):
            self.kv.admit("r2", [1])
        with self.assertRaises(EngineClosed):
            self.kv.abort("r1")

    def test_the_log_folds_to_the_state(self) -> None:
        """The events of a run lead another ledger to the same digest."""
        for num in range(30):
            self._fill(f"r{num}", [num % 3] * (3 + num % 8))
            if num:
                self.kv.finish(f"r{num - 1}", [(num - 1) % 3] * (3 + (num - 1) % 8))
        ledger = Ledger(_CONFIG)
        for seq, event in enumerate(self.log.events()):
            ledger.apply(event, seq, 0)
        self.assertEqual(ledger.digest(), self.digest(self.kv))
        self.kv.close()
        self.assertEqual(self.log.digest, ledger.digest())

    def test_a_closed_engine_does_nothing(self) -> None:
        """After the end every command says that the run has ended."""
        self._fill("r1", _TEN)
        self.kv.close()
        commands: list[Callable[[], object]] = [
            lambda: self.kv.admit("r2", [1]),
            lambda: self.kv.commit(["r1"]),
            lambda: self.kv.match([1]),
            lambda: self.kv.finish("r1", _TEN),
        ]
        for command in commands:
            with self.assertRaises(EngineClosed):
                command()

    # -- random lives ----------------------------------------------------------------------

    def test_random_lives_break_nothing(self) -> None:
        """`find` looks for a program that breaks an invariant, and finds none."""
        # The other tests need no Hypothesis.
        from kvlife.testing.hunt import find

        make = self.engine

        class Adapter(EngineAdapter):
            def _make(self, config: PoolConfig, log: LogWriter, clock: Callable[[], int]) -> Any:
                return make(config, log=log, clock=clock)

        found = find(Adapter, max_examples=50)
        self.assertIsNone(found, found and f"{found.error}\n{found.program}")

    # -- steps of the tests ----------------------------------------------------------------

    def _fill(self, rid: str, tokens: list[int]) -> None:
        """A request whose prompt is committed."""
        self.kv.admit(rid, tokens)
        self.kv.allocate([rid], [len(tokens)])
        self.kv.commit([rid], [len(tokens)])

    def _ladder(self, rid: str) -> tuple[int, int, int]:
        record = self.kv.record(rid)
        return record.cache_protected_len, record.kv_committed_len, record.kv_allocated_len

    def _pages(self, rid: str) -> list[int]:
        length = self._ladder(rid)[2]
        slots = np.asarray(self.kv.slots([rid], [0], [length], "full"))
        return [int(slot) // 4 for slot in slots[::4]]
