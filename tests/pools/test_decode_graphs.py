"""Decode steps from graphs: captured once for a size of batch, replayed with other inputs."""

import contextlib

import numpy as np
import pytest
import torch
from device_events import Twins

from kvlife import CacheGroup, KvEngine, PoolConfig
from kvlife.events import Admitted, Allocated
from kvlife.pools import DevicePools
from kvlife.pools.decoding import DecodeSteps
from kvlife.pools.graphs import GraphedLaunch, capture_graph

CONFIG = PoolConfig(
    page_size=4,
    num_pages=200,
    max_requests=20,
    max_context_len=60,
    groups=(CacheGroup("full"), CacheGroup("swa", window=6, page_size=2)),
)


class Graphs:
    """Stands for CUDA graphs: a capture runs nothing, a replay runs what was captured."""

    def __init__(self):
        self.num_captured = self.num_replayed = 0

    def capture(self, launch):
        self.num_captured += 1

        def replay():
            self.num_replayed += 1
            launch()

        return replay


def test_a_launch_runs_once_then_is_captured_and_replayed():
    """Each run puts the launch on the stream once; the first one loads the kernel."""
    graphs, runs = Graphs(), []
    launch = GraphedLaunch(lambda: runs.append(graphs.num_replayed), graphs.capture)
    for _ in range(4):
        launch.run()
    assert (graphs.num_captured, graphs.num_replayed, runs) == (1, 3, [0, 1, 2, 3])


def test_a_capture_has_a_stream_on_the_device_of_the_pools(monkeypatch):
    """The current device may be another one, and then torch's own stream for captures is too."""
    launched, current = [], []

    class Graph:
        def replay(self):
            launched.append("replayed")

    @contextlib.contextmanager
    def capturing(_graph, *, stream, capture_error_mode):
        current.append((stream, capture_error_mode))
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: f"a stream of {device}")
    monkeypatch.setattr(torch.cuda, "graph", capturing)
    replay = capture_graph(torch.device("cuda:1"), lambda: launched.append("captured"))
    replay()
    assert current == [("a stream of cuda:1", "thread_local")]
    assert launched == ["captured", "replayed"]


@pytest.fixture
def graphed():
    """An engine whose pools take decode steps from graphs, and one whose pools do not."""
    engines = [KvEngine(CONFIG, pools=DevicePools(), key_seed=1) for _ in range(2)]
    graphs = Graphs()
    pools = engines[0]._pools
    pools._steps = DecodeSteps(pools.state, pools._uploads, graphs.capture)
    for engine in engines:
        for number in range(12):
            rid, length = f"r{number}", 1 + number
            engine.admit(rid, list(range(100 * number, 100 * number + length)))
            engine.allocate([rid], [length])
            engine.commit([rid])
    return graphs, engines


def step(engines, rids, times=1):
    """Decode steps of a new batch in each engine; the slots of the last one, per group."""
    found = []
    for engine in engines:
        batch = engine.batch(rids)
        for _ in range(times):
            engine.decode(batch)
            engine.commit(batch)
        found.append([engine.last_slots(batch, name).tolist() for name in ("full", "swa")])
        assert engine.audit() == []
    return found


def test_graphs_give_what_launches_give(graphed):
    """Batches of several sizes and memberships, in turns, have equal slots and equal states."""
    graphs, engines = graphed
    names = [f"r{number}" for number in range(12)]
    for rids in (names[:5], names, names[3:9], [names[7]], names[::-1], names[:8]):
        one, other = step(engines, rids, times=3)
        assert one == other
    assert graphs.num_captured == 2, "one for batches of up to 8, one for up to 16"
    assert graphs.num_replayed == 3 * 6 - 2


def test_slots_of_a_step_stay_as_they_are(graphed):
    """A later replay writes into the same buffers, and not into what the engine gave out."""
    _, (engine, _) = graphed
    batch = engine.batch(["r1", "r2"])
    engine.decode(batch)
    second = engine.decode(batch)
    before = second.tolist()
    third = engine.decode(batch)
    assert second.tolist() == before
    assert third.tolist() != before


def test_a_resize_makes_new_graphs(graphed):
    """The page columns lie elsewhere then."""
    graphs, engines = graphed
    step(engines, ["r1", "r2"], times=2)
    for engine in engines:
        engine.resize(220, space="full")
    one, other = step(engines, ["r1", "r2"], times=3)
    assert one == other
    assert graphs.num_captured == 2


def test_steps_that_are_not_plain_are_left_to_the_other_kernels():
    """An event whose pages are not those of its rows goes the general way, to the same state."""
    twins = Twins(CONFIG)
    none = np.empty(0, np.int32)
    for row in (1, 2):
        twins.apply(Admitted(f"r{row}", row, 0, 4, 0, 0, (0,), (none, none)))
    rows, ones = np.array([1, 2], np.int32), np.array([1, 1], np.int32)
    event = Allocated(rows, ones, (np.array([5], np.int32), np.array([6, 7], np.int32)))
    change = twins.ledger.apply(event, twins.seq)
    change.one_each = True
    assert not twins.pools._steps.run(change, twins.seq)
    twins.pools.apply(event, change, twins.seq)
    assert not twins.differing()
