"""Several engines on one folder of logs: in one process, in many, and across a fork."""

import subprocess
import sys

import pytest
from script_runs import environment, run_script
from small_runs import assert_clean, plan_of, replayed_run, writer_of

from kvlife import Checker, KvEngine
from kvlife.log import open_run, runs
from kvlife.simulation import Scheduler

NUM_PROCESSES = 4


class Beside:
    """An engine that is driven in turns with others, its log in the same folder."""

    def __init__(self, path, kind):
        self.plan = plan_of(writer_of(path), kind=kind, num_requests=25, seed=kind)
        self.engine = KvEngine(
            self.plan.pools, log=self.plan.log, checker=Checker(), key_seed=1, clock=self.plan.clock
        )
        self.loop = Scheduler(
            self.engine, self.plan.workload, self.plan.config, clock=self.plan.clock
        )


def assert_all_replay(path, digests):
    """Each run of the folder replays clean, to the digest that its engine ended with."""
    found = []
    for run in runs(path):
        outcome = replayed_run(run)
        assert_clean(outcome, open_run(run), compared=True)
        found.append(outcome.digest)
    assert sorted(found) == sorted(digests)


def test_engines_in_one_process_do_not_mix(tmp_path):
    """Engines that take turns in one thread each write a run, and each run replays."""
    running = [Beside(tmp_path, kind) for kind in (0, 1, 2, 3, 1)]
    going = list(running)
    while going:
        going = [one for one in going if one.loop.advance()]
    for one in running:
        one.engine.close()
    assert_all_replay(tmp_path, [one.engine.ledger.digest() for one in running])
    # Equal arguments, equal events, whatever ran between them.
    assert running[1].engine.ledger.digest() == running[4].engine.ledger.digest()


def test_processes_on_one_folder_do_not_mix(tmp_path):
    """Processes that start at once claim a run each, and each run replays."""
    code = (
        "import sys; from small_runs import recorded_run;"
        "print(recorded_run(sys.argv[1], kind=int(sys.argv[2]), num_requests=25).digest)"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code, str(tmp_path), str(kind)],
            env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for kind in range(NUM_PROCESSES)
    ]  # fmt: skip
    ended = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0] * NUM_PROCESSES, ended
    assert len(runs(tmp_path)) == NUM_PROCESSES
    assert_all_replay(tmp_path, [int(out) for out, _ in ended])


@pytest.mark.parametrize("kind", [1, 3])
def test_a_forked_child_leaves_its_parents_run_alone(tmp_path, kind):
    """The child is refused, a new engine in it has a run of its own, and both replay."""
    found = run_script("forked_engine.py", tmp_path, kind)
    assert found["refused"] == found["asked"] > 5
    assert len(runs(tmp_path)) == 2
    assert_all_replay(tmp_path, [found["parent"], found["child"]])
