"""Same arguments and seed: the same log, byte for byte."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvlife.log import open_run
from kvlife.log.background import LogThread
from kvlife.simulation import (
    SchedulerConfig,
    SimulationPlan,
    SteadyLog,
    SyntheticConfig,
    VirtualClock,
    generate,
    simulate,
    size_pools,
)

ROOT = Path(__file__).resolve().parents[2]
ARGUMENTS = (
    "simulate --synthetic 150 --seed 5 --num-pages 700 --overlap --session-rate 0.4"
    " --abort-rate 0.2 --window 64 --draft 2 --json --log"
)


def contents(folder):
    """The hash of each file under a folder, by its path there."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def simulate_into(folder, seed=5):
    """A run with many snapshots, in small segments; its outcome."""
    workload = generate(SyntheticConfig(num_requests=120, seed=seed))
    config = SchedulerConfig(session_rate=0.3, abort_rate=0.1, headroom_tokens=0, seed=seed)
    clock = VirtualClock()
    log = SteadyLog(folder, clock_ns=clock, snapshot_every_bytes=20_000, segment_bytes=1 << 17)
    pools = size_pools(workload, config, page_size=16, num_pages=400)
    return simulate(
        SimulationPlan(workload=workload, pools=pools, config=config, log=log, clock=clock)
    )


def test_hash_randomisation_changes_nothing(tmp_path):
    """Two processes with different hash seeds write equal files."""
    for hash_seed in "12":
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        subprocess.run(
            [sys.executable, "-m", "kvlife.replay", *ARGUMENTS.split(), tmp_path / hash_seed],
            check=True,
            env=environment,
            stdout=subprocess.DEVNULL,
        )
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


@pytest.fixture
def at_once(monkeypatch):
    """Snapshots are written where they are asked for, before anything else happens."""
    monkeypatch.setattr(LogThread, "snapshot", LogThread._snapshot)


def test_the_speed_of_the_logs_thread_changes_nothing(tmp_path, request):
    """Snapshots that are written at once stand where those of a busy thread stand."""
    simulate_into(tmp_path / "background")
    request.getfixturevalue("at_once")
    simulate_into(tmp_path / "inline")
    assert contents(tmp_path / "background") == contents(tmp_path / "inline")
    assert len(open_run(tmp_path / "inline").snapshots) > 3


def test_another_seed_gives_another_log(tmp_path):
    """So the comparisons above compare something."""
    first, second = simulate_into(tmp_path / "1"), simulate_into(tmp_path / "2", seed=6)
    assert first.digest != second.digest


def test_the_digest_is_the_one_in_the_log(tmp_path):
    """The end mark has the outcome's digest, and all events."""
    outcome = simulate_into(tmp_path)
    run = open_run(tmp_path)
    assert run.closed.digest == outcome.digest
    assert run.closed.num_events == outcome.stats.events == run.next_seq
    assert run.header.created_ns == 0
