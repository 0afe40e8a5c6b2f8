"""device-agrees: drift of one bit is found and named, whichever tensor it is in."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from device_events import Twins

from kvlife import (
    CacheGroup,
    Checker,
    InvariantViolation,
    KvEngine,
    LogWriter,
    Observer,
    PoolConfig,
)
from kvlife.events import Admitted, Allocated, Released
from kvlife.log import open_run
from kvlife.pools import DevicePools, agreement
from kvlife.pools.agreement import Agreement, ViolationWatch, digests_of
from kvlife.replay.replaying.session import Settings, replay_run

CONFIG = PoolConfig(
    page_size=4,
    num_pages=40,
    max_requests=5,
    max_context_len=40,
    groups=(CacheGroup("full"), CacheGroup("swa", window=8)),
)
TENSORS = [
    "table of group 'full'", "table of group 'swa'",
    "state of space 'full'", "refs of space 'full'", "pins of space 'full'",
    "state of space 'swa'", "refs of space 'swa'", "pins of space 'swa'",
    "allocated lengths", "committed lengths", "protected lengths", "floor lengths",
    "cursors of group 'swa'",
]  # fmt: skip
NONE = np.empty(0, np.int32)


def running(**options):
    """An engine with two requests that have committed 10 and 7 tokens."""
    pools = DevicePools()
    engine = KvEngine(CONFIG, pools=pools, key_seed=1, clock=lambda: 0, **options)
    for rid, length in (("r1", 10), ("r2", 7)):
        engine.admit(rid, list(range(length)))
        engine.allocate([rid], [length])
        engine.commit([rid])
    return engine, pools


def flip(tensor, at, bit):
    """Change one bit of one entry; what the entry was."""
    flat = tensor.view(-1)
    before = int(flat[at])
    flat[at] = int(np.array(before, np.int32) ^ np.array(1 << bit, np.uint32).astype(np.int32))
    return before


@pytest.mark.parametrize("name", TENSORS)
def test_a_flipped_bit_is_named_with_both_values(name, seed):
    """The finding says which tensor, where in it, and what the device and the ledger have there."""
    rng = random.Random(seed)
    engine, pools = running(checker=Checker(policy="collect"))
    tensor, _ = pools.state.beside(engine.ledger)[name]
    at, bit = rng.randrange(tensor.numel()), rng.randrange(31)
    before = flip(tensor, at, bit)
    found = [one for one in engine.audit() if one.evidence.get("tensor") == name]
    assert [one.id for one in found] == ["device-agrees"]
    evidence = found[0].evidence
    assert (evidence["device"], evidence["ledger"]) == ([before ^ 1 << bit], [before])
    if name.startswith("table"):
        assert (evidence["rows"], evidence["table_idx"]) == ([at // 10], [at % 10])
    else:
        assert evidence["pages" if " of space " in name else "rows"] == [at]


def test_a_sound_state_agrees():
    """Without drift, audits find nothing, and what was not checked does not name the device."""
    engine, _ = running()
    assert engine.audit() == []
    assert not any("device-agrees" in line for line in engine.checker.names_off())
    engine.close()


def test_a_run_without_pools_says_that_the_device_was_not_checked():
    """The reason stands beside the name of the invariant."""
    engine = KvEngine(CONFIG)
    assert "device-agrees: no device pools are attached" in engine.checker.names_off()


@pytest.mark.parametrize("policy", ["raise", "collect", "log"])
def test_drift_goes_the_way_of_the_policy(tmp_path, policy):
    """Under raise it ends the run and its log, else it is counted and the run goes on."""
    told = []
    checker = Checker(policy=policy, on_violation=told.append)
    engine, pools = running(checker=checker, log=LogWriter(tmp_path))
    flip(pools.state.committed, 2, 3)
    if policy == "raise":
        with pytest.raises(InvariantViolation, match="device-agrees"):
            engine.audit()
        assert engine.closed
    else:
        assert [found.id for found in engine.audit()] == ["device-agrees"]
        assert engine.stats().violations == {"device-agrees": 1}
        engine.mark("goes on")
        pools.state.load(engine.ledger)
        engine.close()
    assert [found.id for found in told] == ["device-agrees"]
    outcome = replay_run(open_run(tmp_path), Settings())
    # What ended the run is told of it, though a replay has no device to look at.
    ended = ["device-agrees"] if policy == "raise" else []
    assert ([found.id for found in outcome.found], outcome.differences) == (ended, ())


def test_an_ignored_invariant_finds_nothing():
    """What is switched off is named as off, and drift is not told."""
    engine, pools = running(checker=Checker(ignore=["device-agrees"]))
    flip(pools.state.allocated, 2, 3)
    assert engine.audit() == []
    assert "device-agrees: ignored" in engine.checker.names_off()


def test_what_a_kernel_finds_of_a_sound_event_is_told():
    """A page that the device has in use, and the ledger has FREE, is named when it is taken."""
    engine, pools = running(checker=Checker(policy="collect"))
    page = int(engine.ledger.spaces[0].free.head(1)[0])
    pools.state.groups[0].state[page] = 1
    engine.allocate(["r1"], [14])
    first = engine.checker.stats.first
    assert (first.id, first.evidence["code"], first.evidence["pages"]) == (
        "device-agrees", "NOT_FREE", [page],
    )  # fmt: skip


def test_a_fault_that_the_checker_finds_is_not_told_twice():
    """A double free that the guard has found is no disagreement of the device."""
    observer = Observer(CONFIG, checker=Checker(policy="collect"), pools=DevicePools())
    rows, pages = np.array([1], np.int32), (np.array([3, 4], np.int32), np.array([3], np.int32))
    observer.observe(Admitted("r1", 1, 0, 5, 0, 0, (0,), (NONE, NONE)))
    observer.observe(Allocated(rows, np.array([5], np.int32), (pages[0], pages[0])))
    observer.observe(Released("r1", 1, "aborted", (pages[0].repeat(2), pages[0]), NONE))
    observer.audit()
    assert "page-double-free" in observer.checker.stats.violations
    assert "device-agrees" not in observer.checker.stats.violations


def test_a_digest_changes_with_any_bit(seed):
    """Tensors from one entry to several blocks, a bit of each of some hundred entries."""
    rng = random.Random(seed)
    for size in (1, 1023, 1024, 5000, (1 << 20) + 77):
        entries = torch.randint(-(1 << 31), 1 << 31, (size,)).to(torch.int32)
        whole = digests_of([entries]).item()
        for _ in range(60):
            other = entries.clone()
            flip(other, rng.randrange(size), rng.randrange(31))
            assert digests_of([other]).item() != whole


def test_the_weights_of_digests_are_sent_to_a_device_once():
    """Sending them waits for the device, and an audit must not."""
    cpu = torch.device("cpu")
    assert agreement._odd_weights(cpu) is agreement._odd_weights(cpu)


class Arriving:
    """An event of a device that has not come past yet, until it is waited for."""

    def __init__(self):
        self.has_passed = False

    def query(self):
        return self.has_passed

    def synchronize(self):
        self.has_passed = True


@pytest.fixture
def arriving(monkeypatch):
    """Copies to the host that are under way until `has_passed` is set on their event."""
    events = []

    def to_host(tensor):
        events.append(Arriving())
        return tensor.clone(), events[-1]

    monkeypatch.setattr(agreement, "_to_host", to_host)
    return events


def test_on_a_device_digests_are_read_a_step_later(arriving):
    """A comparison is begun without waiting, and its outcome known when its copy has arrived."""
    twins = Twins(CONFIG)
    state, ledger = twins.pools.state, twins.ledger
    state.device = SimpleNamespace(type="cuda")
    compared = Agreement(state, ledger)
    assert compared.begin() == []
    flip(state.refs, 5, 0)
    assert compared.outcome(wait=False) == []
    arriving[0].has_passed = True
    assert compared.outcome(wait=False) == []
    assert compared.begin() == []
    flip(state.refs, 5, 0)
    found = compared.begin()
    assert [one.evidence["tensor"] for one in found] == ["refs of space 'full'"]
    assert "does not any more" in found[0].evidence["since"]
    assert arriving[1].has_passed
    flip(state.refs, 6, 2)
    compared.begin()
    (found,) = compared.outcome(wait=True)
    assert (found.evidence["pages"], found.evidence["device"]) == ([6], [4])


def test_on_a_device_the_violation_counter_is_read_a_step_later(arriving):
    """What kernels report is known once the copy of their counter has arrived, or is waited for."""
    twins = Twins(CONFIG)
    violations = twins.pools.state.violations
    watch = ViolationWatch(violations)
    watch._on_host, watch._count = False, None
    assert watch.begin() == []
    violations.entries[0] = torch.tensor([3, 1, 7, -1, 12])
    violations.count.fill_(1)
    arriving[0].has_passed = True
    assert watch.outcome(wait=False) == []
    assert watch.begin() == []
    assert watch.outcome(wait=False) == []
    (found,) = watch.begin()
    assert (found.seq, found.evidence["code"]) == (12, "DOUBLE_FREE")
    assert (found.evidence["group"], found.evidence["pages"]) == (1, [7])
    assert watch.outcome(wait=True) == []
