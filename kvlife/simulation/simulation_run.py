"""A whole simulation: an engine, its checker and its log about a workload, to the final digest."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import attrs

from kvlife.config import PoolConfig
from kvlife.engine import KvEngine, Stats
from kvlife.errors import InvariantViolation
from kvlife.invariants import Checker, Finding
from kvlife.log import LogWriter
from kvlife.simulation.scheduler import Scheduler
from kvlife.simulation.scheduler_config import SchedulerConfig
from kvlife.simulation.sequential import SequentialRun
from kvlife.simulation.tally import Tally
from kvlife.simulation.virtual_time import VirtualClock
from kvlife.simulation.workload import Workload

Progress = Callable[[int], None]


@attrs.frozen(kw_only=True)
class SimulationPlan:
    """What to simulate; `config` is None for one request after another.

    `level` is the checker's, `policy` orders evictions, `key_seed` seeds the page keys. `log`
    should be a `SteadyLog`, which makes equal runs equal byte for byte; `clock` is the time of
    the events, and may be the log's, too.
    """

    workload: Workload
    pools: PoolConfig
    config: SchedulerConfig | None = None
    policy: str = "lru"
    key_seed: int = 0
    level: str = "event"
    log: LogWriter | None = None
    clock: VirtualClock = attrs.field(factory=VirtualClock)


@attrs.frozen(kw_only=True)
class SimulationOutcome:
    """What a simulation did. Times are wall times, `virtual_ns` apart.

    `engine_ns` is the time in commands, of which `stats` says how much checks and log took.
    `digest` is that of the final state; `stopped` says that a violation ended the run early.
    """

    tally: Tally
    stats: Stats
    findings: tuple[Finding, ...]
    audits: int
    digest: int
    stopped: bool
    engine_ns: int
    virtual_ns: int
    seconds: float


def simulate(plan: SimulationPlan, progress: Progress | None = None) -> SimulationOutcome:
    """Run a plan to its end; `progress` is called now and then with the requests that are done.

    A violation ends the run and stands in the outcome. Raises `LogError` and `ConfigError`.
    """
    begun = perf_counter()
    findings: list[Finding] = []
    engine = KvEngine(
        plan.pools,
        log=plan.log,
        checker=Checker(level=plan.level, on_violation=findings.append),
        policy=plan.policy,
        key_seed=plan.key_seed,
        clock=plan.clock,
    )
    run = _run_of(plan, engine)
    stopped = False
    try:
        with engine:
            run.run(progress)
    except InvariantViolation:
        stopped = True
    return SimulationOutcome(
        tally=run.tally,
        stats=engine.stats(),
        findings=tuple(findings),
        audits=engine.checker.stats.audits,
        digest=engine.ledger.digest(),
        stopped=stopped,
        engine_ns=run.engine_ns,
        virtual_ns=plan.clock.now_ns,
        seconds=perf_counter() - begun,
    )


def _run_of(plan: SimulationPlan, engine: KvEngine) -> Scheduler | SequentialRun:
    if plan.config is None:
        return SequentialRun(engine, plan.workload, clock=plan.clock)
    return Scheduler(engine, plan.workload, plan.config, clock=plan.clock)
