"""Sound simulated runs to put faults into: several kinds of pools, sessions, drafts, overlap."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import attrs

from kvlife import CacheGroup, KvEngine, PoolConfig
from kvlife.log import open_run
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
from kvlife.testing.faults import Course


@attrs.frozen(kw_only=True)
class RunKind:
    """One kind of run. `window_page_size` None: the pool's; `window` None: full attention alone."""

    page_size: int
    window: int | None = None
    window_page_size: int | None = None
    overlap: bool = False
    draft: int = 0
    session_rate: float = 0.0
    num_slots: int = 2000
    publish: str = "committed"


KINDS = (
    RunKind(page_size=4, window=32, overlap=True, session_rate=0.6),
    RunKind(page_size=16, window=32, window_page_size=8, draft=3, session_rate=0.6),
    RunKind(page_size=1, draft=3, num_slots=1300),
    RunKind(page_size=8, overlap=True, draft=4, session_rate=0.8, num_slots=6000),
    RunKind(page_size=4, overlap=True, num_slots=1300),
    RunKind(page_size=4, draft=2, publish="scheduled"),
)


def courses(folder: Path, num_requests: int, seed: int) -> Iterator[Course]:
    """Simulate each kind of run, with its log below the folder; its events are read back."""
    for idx, kind in enumerate(KINDS):
        yield Course.of_run(open_run(record(folder / str(idx), kind, num_requests, seed)))
    for window in (None, 6):
        path = folder / f"backups-{window}"
        yield Course.of_run(open_run(record_backups(path, window, num_requests, seed)))


def record_backups(path: Path, window: int | None, num_requests: int, seed: int) -> Path:
    """Requests that are backed up, resumed and aborted by chance, many waiting at a time.

    A scheduler retracts few requests, and nearly all of what they have is published.
    """
    rng = random.Random(seed)  # noqa: S311  # not a secret
    groups = [CacheGroup("full")]
    if window is not None:
        groups.append(CacheGroup("swa", window=window, page_size=2))
    clock = VirtualClock()
    config = PoolConfig(
        page_size=4,
        num_pages=120,
        max_requests=8,
        max_context_len=64,
        groups=groups,
        host_pages=60,
    )
    log = SteadyLog(path, clock_ns=clock)
    with KvEngine(config, log=log, key_seed=1, clock=clock) as engine:
        for num in range(num_requests):
            _live_on_the_host(engine, f"r{num}", rng)
        for rid in (*engine.ledger.requests, *engine.ledger.waiting):
            engine.abort(rid)
        engine.mark("end", idle=True)
    return path


def _live_on_the_host(engine: KvEngine, rid: str, rng: random.Random) -> None:
    """One more request begins, and others are backed up, resumed and ended."""
    for waiting in rng.sample(sorted(engine.ledger.waiting), len(engine.ledger.waiting) // 3):
        if rng.random() < 0.3:
            engine.abort(waiting)
        elif len(engine.ledger.requests) < 6:
            engine.resume(waiting, _tokens(waiting)[: rng.randrange(20, 61)])
    engine.admit(rid, _tokens(rid)[: rng.randrange(8, 40)])
    for running in sorted(engine.ledger.requests):
        record = engine.record(running)
        wanted = min(record.kv_allocated_len + rng.randrange(12), 60)
        engine.allocate([running], [max(wanted, record.prompt_len)])
        engine.commit([running])
        if rng.random() < 0.3:
            engine.protect(running, _tokens(running))
        if len(engine.ledger.requests) > 3 or rng.random() < 0.4:
            engine.evict_window([running])
            engine.retract_with_backup(running)


def _tokens(rid: str) -> list[int]:
    """Two kinds of requests share their prefixes."""
    return [int(rid[1:]) % 2, *range(60)]


def record(path: Path, kind: RunKind, num_requests: int, seed: int) -> Path:
    """Simulate one kind of run; its log lies at the path."""
    workload = generate(
        SyntheticConfig(
            num_requests=num_requests,
            seed=seed,
            max_context_len=16 * 120,
            conversations_per_s=40,
            turns_mean=8,
            num_system_prompts=2,
            system_len_median=40,
            user_len_median=40,
            answer_len_median=40,
            pause_s_mean=0.1,
            answer_ns_per_token=2_000_000,
        )
    )
    config = SchedulerConfig(
        max_running=16,
        chunk_tokens=48,
        headroom_tokens=0,
        overlap=kind.overlap,
        draft=kind.draft,
        session_rate=kind.session_rate,
        abort_rate=0.15,
        seed=seed,
    )
    pools = size_pools(
        workload,
        config,
        page_size=kind.page_size,
        num_pages=max(
            4 + kind.num_slots // kind.page_size, least_pages(workload, config, kind.page_size)
        ),
        window=kind.window,
    )
    pools = attrs.evolve(pools, publish=kind.publish)
    if kind.window_page_size is not None:
        pools = attrs.evolve(pools, groups=_finer(pools, kind.window_page_size))
    clock = VirtualClock()
    log = SteadyLog(path, clock_ns=clock)
    plan = SimulationPlan(
        workload=workload, pools=pools, config=config, key_seed=1, log=log, clock=clock
    )
    done = simulate(plan)
    if done.findings:
        raise AssertionError(f"the run was to be sound, and broke {done.findings[0].id}")
    return path


def _finer(pools: PoolConfig, page_size: int) -> tuple[CacheGroup, ...]:
    """The window group with smaller pages, and more of them."""
    full, window = pools.groups
    num_pages = (window.num_pages or pools.num_pages) * (pools.page_size // page_size)
    return full, attrs.evolve(window, page_size=page_size, num_pages=num_pages)
