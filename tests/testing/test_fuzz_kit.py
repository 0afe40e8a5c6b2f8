"""The kit itself: what it refuses, what a failing run says and leaves, how programs are cut."""

import subprocess
import sys
import unittest

import broken_allocators as broken
import hypothesis
import hypothesis.stateful
import pytest
import sound_allocators as sound
from hypothesis import given

from kvlife import ConfigError, InvariantViolation, KvEngine, LogWriter, PoolConfig, open_run
from kvlife.config import compile_layout
from kvlife.events import EVENT_TYPES, Marked, check_structure
from kvlife.simulation import Workload
from kvlife.testing import (
    BlockAllocator,
    ContractBroken,
    EngineAdapter,
    LifecycleMachine,
    find,
    fuzz,
    lives,
    pool_configs,
    token_lists,
    workloads,
)
from kvlife.testing.memory_log import MemoryLog
from kvlife.testing.minimize import minimize
from kvlife.testing.program import Call
from kvlife.testing.samples import one_of_each

PAGE_SIZES = (1, 2, 4, 16)
CONFIG = PoolConfig(page_size=4, num_pages=32, max_requests=4, max_context_len=64)


def test_without_hypothesis_the_error_names_the_extra():
    """Fuzzing asks for `kvlife[testing]`; what needs no Hypothesis works without it."""
    script = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "from kvlife.testing import BlockAllocator, conformance, faults\n"
        "try:\n    from kvlife.testing import fuzz\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert "pip install 'kvlife[testing]'" in done.stdout


# -- adapters that cannot be ---------------------------------------------------------------


class Bare:
    """Verbs, and no books."""

    def __init__(self, config):
        pass

    def admit(self, rid, tokens):
        pass

    def free(self, rid):
        pass


class Misspelt(sound.ListAllocator):
    """A verb that the kit would never call."""

    def rollback(self, rid, length):
        pass


class Short(sound.ListAllocator):
    """Takes a page for itself."""

    def __init__(self, config):
        super().__init__(config)
        self._free.pop()


@pytest.mark.parametrize(
    ("adapter_type", "message"),
    [
        (Bare, "Bare does not define free_pages, table"),
        (Misspelt, "Misspelt defines rollback, which the kit would never call"),
    ],
)
def test_an_adapter_that_cannot_be_is_refused_at_once(adapter_type, message):
    """Missing books and unknown names are named before anything runs."""
    with pytest.raises(ConfigError, match=message):
        fuzz(adapter_type)


def test_a_pool_of_another_size_is_refused():
    """An allocator must begin with the pages that it was given, all of them free."""
    with pytest.raises(ConfigError, match="the free list of a new Short has"):
        find(Short, max_examples=1)


# -- what a failing run says and leaves ----------------------------------------------------


def test_a_failing_case_says_program_and_log(tmp_path):
    """The error carries the smallest program and the command that replays its log."""
    settings = hypothesis.settings(max_examples=100, database=None, derandomize=True)
    adapter = broken.adapter_of(broken.LeaksTheTail)
    case = fuzz(adapter, log_root=tmp_path, settings=settings)
    outcome = case().run(unittest.TestResult())
    ((_, shown),) = outcome.errors
    assert "refs-balance broken at seq 3 by Released" in shown
    assert "state.admit(rid='r1', tokens=[0])\nstate.free(rid='r1')\n" in shown
    assert f"kvlife replay {tmp_path}/run-000001" in shown
    run = open_run(tmp_path)
    assert [r.event.invariant for r in run.events() if hasattr(r.event, "invariant")] == [
        "refs-balance"
    ]


def test_what_no_event_can_say_is_a_note_in_the_log(tmp_path):
    """Shared pages with other tokens stand in the log as a note that names both."""
    found = find(broken.adapter_of(broken.HashesNoTokens), log_root=tmp_path)
    assert isinstance(found.error, ContractBroken)
    notes = [r.event.text for r in open_run(tmp_path).events() if isinstance(r.event, Marked)]
    assert notes == ["request 'r2' shares page 1 for [1], which holds [0]: token 0 differs"]


class Crashing(sound.ListAllocator):
    """Fails with an error of its own at a third page."""

    def extend(self, rid, tokens):
        super().extend(rid, tokens)
        if len(self._tables[rid]) > 2:
            raise ZeroDivisionError("as a test has it")


def test_an_error_of_the_allocator_is_a_find(tmp_path):
    """An allocator that crashes is found as one that lies is."""
    found = find(Crashing, log_root=tmp_path)
    assert isinstance(found.error, ZeroDivisionError)
    assert found.program.splitlines()[1:] == [
        "state.begin(page_size=1, num_pages=4)",
        "state.admit(rid='r1', tokens=[0, 0, 0])",
    ]


class ByHypothesisAlone(LifecycleMachine):
    """The machine of an adapter, as a user writes it who wants rules of their own."""

    adapter_type = broken.adapter_of(broken.LeaksTheTail)


def test_the_machine_runs_under_hypothesis_alone():
    """A subclass that names its adapter is a state machine like any other."""
    settings = hypothesis.settings(
        max_examples=50, database=None, derandomize=True, phases=[hypothesis.Phase.generate]
    )
    with pytest.raises(InvariantViolation, match="refs-balance"):
        hypothesis.stateful.run_state_machine_as_test(ByHypothesisAlone, settings=settings)


class ChangesOnRefusal(KvEngine):
    """Writes a note into the log before it refuses."""

    def roll_back(self, which, lens, *, allocated_lens=None):
        self.mark("I was asked to roll back")
        super().roll_back(which, [10**6], allocated_lens=allocated_lens)


class ChangingAdapter(EngineAdapter):
    """The adapter of an engine whose refusals are not clean."""

    def _make(self, config, log, clock):
        return ChangesOnRefusal(config, log=log, clock=clock, key_seed=1)


def test_a_refusal_of_an_engine_that_changed_something_is_a_find(tmp_path):
    """State and log of an engine are compared around each refused verb."""
    found = find(ChangingAdapter, log_root=tmp_path)
    assert isinstance(found.error, ContractBroken)
    assert found.program.splitlines()[1:] == [
        # One page for two tokens: the request waits, and a roll-back is asked of it all the same.
        "state.begin(page_size=1, num_pages=2)",
        "state.admit(rid='r1', tokens=[0, 0])",
        "state.roll_back(rid='r1', num_tokens=1)",
    ]


def test_a_find_is_the_same_at_each_call(tmp_path):
    """Nothing in `find` is random: program and log come out alike."""
    adapter = broken.adapter_of(broken.MissesTheUnlock)
    first, second = (find(adapter, log_root=tmp_path / name) for name in "ab")
    assert first.program == second.program
    events = [
        [(r.seq, r.time_ns, repr(r.event)) for r in open_run(found.log).events()]
        for found in (first, second)
    ]
    assert events[0] == events[1]


def test_a_log_in_memory_is_saved_as_it_was_told(tmp_path):
    """Groups, envelopes and the digest of a run in memory are those of the log on disk."""
    log = MemoryLog()
    engine = KvEngine(CONFIG, log=log, clock=iter(range(100)).__next__, key_seed=1)
    beside = KvEngine(
        CONFIG, log=LogWriter(tmp_path / "b"), clock=iter(range(100)).__next__, key_seed=1
    )
    for kv in (engine, beside):
        kv.admit("r1", [1] * 9)
        kv.allocate(["r1"], [9])
        kv.commit(["r1"])
        kv.finish("r1", [1] * 9)
        kv.close()
    one, other = open_run(log.save(tmp_path / "a")), open_run(tmp_path / "b")
    assert [len(group) for group in one.groups()] == [len(group) for group in other.groups()]
    assert [(r.seq, r.step, r.time_ns, repr(r.event)) for r in one.events()] == [
        (r.seq, r.step, r.time_ns, repr(r.event)) for r in other.events()
    ]
    assert one.closed.digest == other.closed.digest == engine.ledger.digest()


# -- cutting down --------------------------------------------------------------------------


def test_a_program_is_cut_to_what_matters():
    """Of a long program, calls, sizes and tokens go that the failure does not need."""
    program = (
        Call("begin", {"page_size": 4, "num_pages": 9}),
        Call("admit", {"rid": "r1", "tokens": [1, 1, 1, 1, 0]}),
        Call("admit", {"rid": "r2", "tokens": [1, 0]}),
        Call("evict", {"num_pages": 3}),
        Call("preempt", {"rid": "r2"}),
        Call("extend", {"rid": "r1", "tokens": [0, 0]}),
    )

    def fails(candidate):
        """It takes an admission of two tokens or more, and an end of that request after it."""
        begun = set()
        for call in candidate:
            if len(call.args.get("tokens", ())) > 1:
                begun.add(call.args["rid"])
            elif call.verb in ("free", "preempt") and call.args["rid"] in begun:
                return True
        return False

    assert list(map(str, minimize(program, fails))) == [
        "state.begin(page_size=1, num_pages=2)",
        "state.admit(rid='r1', tokens=[0, 0])",
        "state.free(rid='r1')",
    ]


@pytest.mark.parametrize("page_size", [1, 2, 3, 16])
def test_a_program_is_cut_to_one_form_whatever_it_began_with(page_size):
    """A whole page, then that page and one begun: at any page size, under any names."""
    program = (
        Call("begin", {"page_size": page_size, "num_pages": 2}),
        Call("admit", {"rid": "r11", "tokens": [0] * page_size}),
        Call("admit", {"rid": "r10", "tokens": [0] * (page_size + 1)}),
    )

    def fails(candidate):
        """Two requests, one of a whole page and the next of more."""
        begin, *calls = candidate
        lengths = [len(call.args.get("tokens", [])) for call in calls]
        size = begin.args["page_size"]
        names = {call.args.get("rid") for call in calls}
        return len(names) == 2 and lengths[0] == size < lengths[1]

    assert list(map(str, minimize(program, fails))) == [
        "state.begin(page_size=1, num_pages=2)",
        "state.admit(rid='r1', tokens=[0])",
        "state.admit(rid='r2', tokens=[0, 0])",
    ]


def test_a_fork_that_only_publishes_goes_with_its_child():
    """It takes a page that is shared and let go: a publication does, and then no child ends."""
    program = (
        Call("begin", {"page_size": 1, "num_pages": 2}),
        Call("admit", {"rid": "r1", "tokens": [0]}),
        Call("fork", {"rid": "r1", "child": "r2"}),
        Call("free", {"rid": "r1"}),
        Call("free", {"rid": "r2"}),
    )

    def fails(candidate):
        """A request is shared, and all who share it end; nobody else may."""
        live, shared = set(), False
        for call in candidate[1:]:
            if call.verb == "admit":
                live.add(call.args["rid"])
            elif call.args.get("rid") not in live:
                return False
            elif call.verb in ("fork", "publish"):
                shared = True
                live.update(filter(None, [call.args.get("child")]))
            else:
                live.remove(call.args["rid"])
        return shared and not live

    assert list(map(str, minimize(program, fails)))[1:] == [
        "state.admit(rid='r1', tokens=[0])",
        "state.publish(rid='r1')",
        "state.free(rid='r1')",
    ]


# -- strategies and samples ----------------------------------------------------------------


@given(pool_configs(max_groups=2))
def test_pool_configs_make_engines(config):
    """Each drawn configuration can be built, and a request of one token served."""
    engine = KvEngine(config, key_seed=1)
    engine.admit("r1", [0])
    assert engine.num_free() == engine.config.num_pages - 1


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_token_lists_lie_at_page_borders(page_size):
    """Prompts have whole pages of one token each, and a tail at a border or one beside it."""

    @given(token_lists(page_size))
    def check(tokens):
        tail = (len(tokens) - 1) % page_size + 1
        assert tail in {1, page_size - 1, page_size}
        for start in range(0, len(tokens), page_size):
            assert len(set(tokens[start : start + page_size])) == 1

    check()


@given(lives(4))
def test_lives_can_be_lived(life):
    """A drawn life goes through an engine that has room for it."""
    engine = KvEngine(CONFIG, key_seed=1)
    tokens = list(life.prompt)
    engine.admit("r1", tokens)
    for more in ([], *life.appended):
        tokens += more
        engine.allocate(["r1"], [len(tokens)])
        engine.commit(["r1"])
    engine.abort("r1") if life.ending == "aborted" else engine.finish("r1", tokens)
    assert not engine.ledger.requests


@given(workloads(4))
def test_workloads_are_what_a_simulation_takes(arrivals):
    """Arrivals never fall, and prompts and answers make a workload."""
    workload = Workload.of_tokens(arrivals.arrival_ns, arrivals.prompts, arrivals.outputs)
    assert workload.num_prompt_tokens == sum(map(len, arrivals.prompts))


def test_samples_are_well_formed():
    """There is one of each kind of event, and none is refused."""
    layout = compile_layout(CONFIG)
    for seed in range(50):
        events = one_of_each(layout, seed)
        assert [type(event) for event in events] == list(EVENT_TYPES)
        for event in events:
            check_structure(event, layout)


def test_the_block_allocator_shares_what_it_should():
    """Worked out by hand: three blocks of two tokens, of which the first two are shared."""
    blocks = BlockAllocator(8, 2)
    assert blocks.admit("r1", [1, 2, 3, 4, 5]) == 0
    blocks.publish("r1")
    assert blocks.admit("r2", [1, 2, 3, 4, 5]) == 4
    assert blocks.sequences["r1"].table == [1, 2, 3]
    assert blocks.sequences["r2"].table == [1, 2, 4]
    blocks.fork("r2", "r3")
    assert blocks.sequences["r3"].table == [1, 2, 5]
    assert blocks.num_refs[:6] == [0, 3, 3, 1, 1, 1]
    for rid in ("r1", "r2", "r3"):
        blocks.free(rid)
    assert list(blocks.idle) == [2, 1]
    assert sorted(blocks.free_blocks) == [3, 4, 5, 6, 7, 8]
