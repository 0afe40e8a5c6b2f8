"""A disk that is full in the middle of a simulated run: a clean end, or a gap that is told."""

import errno
import json
import os
import resource

import pytest
from script_runs import run_script
from small_runs import plan_of, replayed_run, writer_of

from kvlife import Checker, KvEngine
from kvlife.errors import EngineClosed, LogFull
from kvlife.log import open_run
from kvlife.log import segment as segment_module
from kvlife.replay.cli import main
from kvlife.simulation import Scheduler

SEGMENT_BYTES = 1 << 13


class Disk:
    """Stands in for the disk where space is reserved; `full` makes it refuse."""

    def __init__(self, monkeypatch):
        self.full = False
        self._reserve = segment_module.reserve_space
        monkeypatch.setattr(segment_module, "reserve_space", self.reserve)

    def reserve(self, fd, num_bytes):
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._reserve(fd, num_bytes)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


class Simulation:
    """A simulated engine driven step by step, which keeps the state after each command's group."""

    def __init__(self, path, kind, on_full):
        self.log = writer_of(path, on_full=on_full, segment_bytes=SEGMENT_BYTES)
        self.plan = plan_of(self.log, kind=kind, num_requests=200, seed=kind)
        self.findings = []
        self.engine = KvEngine(
            self.plan.pools,
            log=self.log,
            checker=Checker(on_violation=self.findings.append),
            key_seed=1,
            clock=self.plan.clock,
        )
        self.loop = Scheduler(
            self.engine, self.plan.workload, self.plan.config, clock=self.plan.clock
        )

    def run_until(self, reached):
        """Advance until `reached()`; the workload must suffice for it."""
        while not reached():
            assert self.loop.advance()


@pytest.mark.parametrize("kind", range(4))
def test_a_full_disk_stops_the_run_cleanly(tmp_path, disk, kind):
    """Under `stop` the command fails before anything is applied, and the log replays to there."""
    run = Simulation(tmp_path, kind, "stop")
    run.run_until(lambda: run.engine.next_seq > 400)
    disk.full = True
    with pytest.raises(LogFull, match=r"no space for .* of the log"):
        run.run_until(lambda: False)
    engine = run.engine
    last_seq, digest = engine.next_seq, engine.ledger.digest()
    assert engine.ledger.next_seq == last_seq
    assert engine.closed
    for command in (lambda: engine.admit("late", [1, 2]), engine.audit, lambda: engine.evict(1)):
        with pytest.raises(EngineClosed, match="no space for"):
            command()
    engine.close()
    run.log.close(digest)
    reader = open_run(tmp_path)
    assert reader.next_seq == last_seq
    outcome = replayed_run(tmp_path)
    assert (outcome.found, outcome.differences, outcome.holes) == ((), (), ())
    assert (outcome.next_seq, outcome.digest, outcome.digest_ok) == (last_seq, digest, True)
    assert run.findings == []


@pytest.mark.parametrize("kind", range(4))
def test_a_full_disk_leaves_a_gap_that_is_told(tmp_path, disk, kind, capsys):
    """Under `gap` the run goes on; the gap is counted, and what follows its snapshot replays."""
    run = Simulation(tmp_path, kind, "gap")
    engine, log = run.engine, run.log
    run.run_until(lambda: engine.next_seq > 400)
    disk.full = True
    run.run_until(lambda: log.gap_events > 150)
    first_missing = log.num_events
    disk.full = False
    before = len(open_run(tmp_path).snapshots)
    run.run_until(lambda: log.num_events > first_missing + 200)
    stats = engine.stats()
    assert (log.num_gaps, stats.gaps) == (1, 1)
    while run.loop.advance():
        pass
    engine.close()
    digest = engine.ledger.digest()
    reader = open_run(tmp_path)
    (gap,) = reader.gaps
    assert gap.first_seq == first_missing
    assert gap.next_seq - gap.first_seq == log.gap_events > 150
    assert gap.next_seq in reader.snapshots
    assert len(reader.snapshots) > before
    outcome = replayed_run(tmp_path)
    assert (outcome.found, outcome.differences) == ((), ())
    (hole,) = outcome.holes
    assert (hole.first_seq, hole.next_seq) == (gap.first_seq, gap.next_seq)
    assert outcome.num_events == engine.next_seq - log.gap_events
    assert (outcome.next_seq, outcome.digest) == (engine.next_seq, digest)
    assert (outcome.digest_ok, outcome.compared) == (True, True)
    assert main(["replay", str(tmp_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [hole["first_seq"] for hole in shown["holes"]] == [gap.first_seq]
    assert run.findings == []


def test_a_run_that_ends_within_its_gap(tmp_path, disk):
    """The end mark says that events are missing before it, and the replay that it lost them."""
    run = Simulation(tmp_path, 1, "gap")
    run.run_until(lambda: run.engine.next_seq > 400)
    disk.full = True
    run.run_until(lambda: run.log.gap_events > 50)
    run.engine.close()
    reader = open_run(tmp_path)
    (gap,) = reader.gaps
    outcome = replayed_run(tmp_path)
    assert gap.next_seq == run.engine.next_seq == reader.next_seq
    assert outcome.next_seq == gap.first_seq
    assert "the disk was full" in outcome.lost
    assert outcome.found == ()
    assert not outcome.compared


def test_the_kernel_refuses(tmp_path):
    """A limit on the size of files, which the kernel holds, ends a run as a full disk does."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    found = run_script("limited_run.py", tmp_path, hard)
    reader = open_run(tmp_path)
    assert found["error"].startswith("LogFull")
    assert reader.next_seq == found["next_seq"] > 0
    outcome = replayed_run(tmp_path)
    assert (outcome.found, outcome.differences, outcome.holes) == ((), (), ())
    assert f"{outcome.digest:016x}" == found["digest"]
