"""Simulated runs of every kind, under pressure, replay to their digests, alone and in processes.

In `make test` each run is short and the same every time; `make soak` makes long ones, with 200
retractions and 10,000 evictions at least, under new seeds.
"""

import itertools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import attrs
import pytest

from kvlife.log import open_run
from kvlife.replay.replaying import session
from kvlife.replay.replaying.session import Settings, replay_run
from kvlife.simulation import (
    SchedulerConfig,
    SimulationPlan,
    SteadyLog,
    SyntheticConfig,
    VirtualClock,
    generate,
    least_pages,
    simulate,
    size_pools,
)

SWITCHES = ("overlap", "window", "draft", "session-rate", "abort-rate")
KINDS = [
    (page_size, frozenset(itertools.compress(SWITCHES, chosen)))
    for page_size in (1, 16, 64)
    for chosen in itertools.product((False, True), repeat=len(SWITCHES))
]


@attrs.frozen(kw_only=True)
class Form:
    """How large the runs are, and what each of them must at least have gone through."""

    seed: int
    num_requests: int
    prompt_len: int
    answer_len: int
    num_slots: int
    snapshot_every_bytes: int
    least_retractions: int
    least_evictions: int


SHORT = Form(
    seed=3,
    num_requests=60,
    prompt_len=20,
    answer_len=60,
    num_slots=1100,
    snapshot_every_bytes=4096,
    least_retractions=1,
    least_evictions=50,
)


@pytest.fixture
def form(request, seed):
    """Long runs under the seed of a soak, short ones else."""
    if request.config.getoption("hypothesis_profile") != "soak":
        return SHORT
    return attrs.evolve(
        SHORT,
        seed=seed,
        num_requests=1200,
        prompt_len=100,
        answer_len=250,
        num_slots=6000,
        snapshot_every_bytes=1 << 18,
        least_retractions=200,
        least_evictions=10_000,
    )


@pytest.fixture(scope="module", autouse=True)
def two_processes():
    """Two processes for all replays of this module, as starting them takes longest."""
    with (
        ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor,
        pytest.MonkeyPatch.context() as patch,
    ):

        @contextmanager
        def lend(_jobs):
            yield executor

        patch.setattr(session, "_executor", lend)
        yield


def run_of(path, form, page_size, switches):
    """Simulate one kind of run, with its log at the path."""
    workload = generate(
        SyntheticConfig(
            num_requests=form.num_requests,
            seed=form.seed,
            max_context_len=16 * (2 * form.prompt_len + form.answer_len),
            conversations_per_s=80,
            system_len_median=form.prompt_len,
            user_len_median=form.prompt_len,
            answer_len_median=form.answer_len,
            pause_s_mean=0.5,
            answer_ns_per_token=2_000_000,
        )
    )
    config = SchedulerConfig(
        max_running=24,
        chunk_tokens=256,
        headroom_tokens=0,
        overlap="overlap" in switches,
        draft=3 if "draft" in switches else 0,
        session_rate=0.3 if "session-rate" in switches else 0.0,
        abort_rate=0.15 if "abort-rate" in switches else 0.0,
        seed=form.seed,
    )
    least = least_pages(workload, config, page_size)
    pools = size_pools(
        workload,
        config,
        page_size=page_size,
        num_pages=max(least, form.num_slots // page_size),
        window=32 if "window" in switches else None,
    )
    clock = VirtualClock()
    log = SteadyLog(path, snapshot_every_bytes=form.snapshot_every_bytes, clock_ns=clock)
    plan = SimulationPlan(
        workload=workload, pools=pools, config=config, key_seed=1, log=log, clock=clock
    )
    return simulate(plan)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("page_size", "switches"),
    KINDS,
    ids=[" ".join((f"page-{size}", *sorted(on))).replace(" ", "+") for size, on in KINDS],
)
def test_a_simulated_run_replays_to_its_digest(tmp_path, form, page_size, switches):
    """Whatever a scheduler did, one process and two find its digest, and nothing wrong."""
    done = run_of(tmp_path, form, page_size, switches)
    assert done.tally.retractions >= form.least_retractions
    assert done.stats.evicted_pages >= form.least_evictions
    assert done.findings == ()
    alone = replay_run(open_run(tmp_path), Settings())
    together = replay_run(open_run(tmp_path), Settings(jobs=2))
    assert together.jobs == 2
    assert attrs.evolve(together, jobs=1) == alone
    assert (alone.found, alone.differences, alone.holes) == ((), (), ())
    assert alone.digest_ok is True
    assert alone.digest == done.digest
    assert alone.num_events == alone.checked.events == done.stats.events
