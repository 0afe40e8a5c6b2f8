"""Commands that break off in the middle: an interrupt, a callback or an invariant that raises."""

import sys
from pathlib import Path

import numpy as np
import pytest

import kvlife
from kvlife import Checker, CommandRefused, EngineClosed, KvEngine, LogWriter, Observer, PoolConfig
from kvlife.errors import InvariantViolation, LogFull
from kvlife.events import Marked, Protected, Released
from kvlife.invariants import Invariant
from kvlife.log import open_run
from kvlife.pools import Pools
from kvlife.replay.replaying.session import Settings, replay_run

SOURCES = (str(Path(kvlife.__file__).parent), str(Path(kvlife.__file__).parent.parent))
PROMPT = list(range(10))
NONE = np.empty(0, np.int32)
UNKNOWN_RELEASE = Released("x", 1, "finished", (NONE,), NONE)
CONFIG = PoolConfig(page_size=4, num_pages=12, max_requests=3, max_context_len=32)
COMMANDS = {
    "admit": lambda e: e.admit("r3", PROMPT),
    "allocate": lambda e: e.allocate(["r1"], [30]),
    "finish": lambda e: e.finish("r1", PROMPT),
    "abort": lambda e: e.abort("r1"),
    "save": lambda e: e.session_save("s", "r1", 9),
    "dispatch": lambda e: e.dispatch(3, ["r1"]),
    "resize": lambda e: e.resize(20),
    "evict": lambda e: e.evict(1),
}


def started(path, **options):
    """An engine whose cache holds two pages, with a request that has committed its prompt."""
    engine = KvEngine(CONFIG, log=LogWriter(path), key_seed=1, clock=lambda: 0, **options)
    for rid, first in (("r0", 50), ("r1", 0)):
        tokens = list(range(first, first + 10))
        engine.admit(rid, tokens)
        engine.allocate([rid], [10])
        engine.commit([rid])
        if rid == "r0":
            engine.finish(rid, tokens)
    return engine


def interrupted(call, at):
    """Run a call with an interrupt at the `at`th line of kvlife; whether there was such a line."""
    seen = 0

    def trace(frame, kind, _arg):
        nonlocal seen
        if not frame.f_code.co_filename.startswith(SOURCES):
            return None
        seen += kind == "line"
        if seen == at:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def replayed_clean(path):
    outcome = replay_run(open_run(path), Settings())
    return not outcome.found and not outcome.differences


@pytest.mark.parametrize("name", COMMANDS)
def test_an_interrupted_command_did_nothing_or_ends_the_run(tmp_path, name):
    """Wherever the interrupt comes, no later command meets a state that is half changed."""
    at, ended = 1, []
    while True:
        path = tmp_path / str(at)
        engine = started(path)
        before = (engine.ledger.digest(), engine.next_seq, engine.log.next_seq)
        if not interrupted(lambda: COMMANDS[name](engine), at):  # noqa: B023  # called at once
            engine.close()
            break
        ended.append(engine.closed)
        if engine.closed:
            with pytest.raises(EngineClosed, match="broke a command off"):
                engine.match(PROMPT)
        else:
            assert (engine.ledger.digest(), engine.next_seq, engine.log.next_seq) == before
            COMMANDS[name](engine)
            engine.close()
        assert replayed_clean(path)
        at += 23
    assert set(ended) == {False, True}


@pytest.mark.parametrize("policy", ["raise", "collect"])
def test_a_callback_that_raises_ends_the_run(tmp_path, policy):
    """The event is in the log and was not applied, so nothing may build on this state."""

    def callback(finding):
        raise RuntimeError(finding.id)

    checker = Checker(policy=policy, on_violation=callback)
    observer = Observer(CONFIG, log=LogWriter(tmp_path), checker=checker)
    with pytest.raises(RuntimeError, match="release-once"):
        observer.observe(UNKNOWN_RELEASE)
    with pytest.raises(EngineClosed, match="RuntimeError broke a command off at seq 0"):
        observer.observe(Marked("later", idle=False))
    assert open_run(tmp_path).next_seq == 1


def test_an_invariant_that_raises_ends_the_run(tmp_path):
    """An error of a user's own check is passed on, and the engine takes no more commands."""

    def guard(_effect):
        raise ZeroDivisionError

    checker = Checker()
    checker.register(
        Invariant(id="own", sentence="It holds.", kind="guard", events=(Marked,), guard=guard)
    )
    engine = started(tmp_path, checker=checker)
    with pytest.raises(ZeroDivisionError):
        engine.mark("x")
    with pytest.raises(EngineClosed, match="ZeroDivisionError"):
        engine.match(PROMPT)


class FailingPools(Pools):
    """Pools whose device fails at the event of a class."""

    def __init__(self, event_class):
        self.event_class = event_class

    def apply(self, event, _change, _seq):
        if type(event) is self.event_class:
            raise RuntimeError("the device is lost")


@pytest.mark.parametrize(("event_class", "digest_ok"), [(Protected, None), (Released, True)])
def test_pools_that_fail_end_the_run_where_they_fail(tmp_path, event_class, digest_ok):
    """A finish is a publish and a release: what is behind the failure is in the log alone."""
    engine = KvEngine(CONFIG, log=LogWriter(tmp_path), pools=FailingPools(event_class))
    engine.admit("r1", PROMPT)
    engine.allocate(["r1"], [10])
    engine.commit(["r1"])
    with pytest.raises(RuntimeError, match="device"):
        engine.finish("r1", PROMPT)
    with pytest.raises(EngineClosed, match="the pools failed"):
        engine.match(PROMPT)
    outcome = replay_run(open_run(tmp_path), Settings())
    assert (outcome.found, outcome.differences, outcome.digest_ok) == ((), (), digest_ok)
    assert outcome.next_seq == 5


def test_an_error_before_anything_is_written_ends_nothing(tmp_path):
    """A log that raised before it took the group has nothing of it; the engine goes on."""
    engine = started(tmp_path)
    before = (engine.ledger.digest(), engine.next_seq)
    engine.log.append = _no_disk
    with pytest.raises(OSError, match="no disk"):
        engine.abort("r1")
    del engine.log.append
    assert (engine.ledger.digest(), engine.next_seq) == before
    engine.abort("r1")
    engine.close()
    assert replayed_clean(tmp_path)


def _no_disk(*_group):
    raise OSError("no disk")


def test_a_full_disk_does_not_hide_a_violation(tmp_path):
    """Where the record of a violation cannot be written, the violation is raised all the same."""
    observer = Observer(CONFIG, log=LogWriter(tmp_path))
    append = observer.log.append

    def full(seq, step, time_ns, events):
        if type(events[0]) is not Released:
            raise LogFull("no space")
        append(seq, step, time_ns, events)

    observer.log.append = full
    with pytest.raises(InvariantViolation, match="release-once"):
        observer.observe(UNKNOWN_RELEASE)
    assert observer.closed


def test_closing_an_engine_that_its_log_ended_frees_the_log(tmp_path):
    """The writer can begin another run then."""
    engine = started(tmp_path)
    append = engine.log.append

    def full(*_group):
        raise LogFull("no space")

    engine.log.append = full
    with pytest.raises(LogFull):
        engine.abort("r1")
    engine.log.append = append
    engine.close()
    assert replayed_clean(tmp_path)
    with KvEngine(CONFIG, log=engine.log) as again:
        again.admit("r1", PROMPT)
    assert replayed_clean(tmp_path)


def test_refusals_end_nothing(tmp_path):
    """What is refused has written nothing, and is no reason to stop."""
    engine = started(tmp_path)
    with pytest.raises(CommandRefused):
        engine.allocate(["r1"], [33])
    assert not engine.closed
    engine.close()
