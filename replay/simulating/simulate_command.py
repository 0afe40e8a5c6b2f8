"""`kvlife simulate`: run a workload through the engine, check each event, and write its log."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated

import attrs
from cyclopts import Parameter

from kvlife.errors import ConfigError
from kvlife.replay.cli import FINE, FOUND
from kvlife.replay.options import AsJson, Check
from kvlife.replay.output.output_file import refuse_log
from kvlife.replay.output.progress import progress_bar
from kvlife.replay.simulating.simulate_report import as_json, print_report
from kvlife.simulation import (
    SchedulerConfig,
    SimulationPlan,
    SteadyLog,
    SyntheticConfig,
    VirtualClock,
    Workload,
    generate,
    least_pages,
    pages_without_eviction,
    read_mooncake,
    size_pools,
)
from kvlife.simulation import simulate as run_plan

# Pages for a trace; a generated workload gets few enough for cache and requests to compete.
TRACE_PAGES = 65_536
SYNTHETIC_PAGES = 1_024


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class SimulateOptions:
    """The options of `kvlife simulate`."""

    trace: Annotated[
        Path | None, Parameter(help="A workload in the Mooncake format: plain, .gz or .zst.")
    ] = None
    synthetic: Annotated[
        int | None, Parameter(help="Generate so many requests: conversations of several turns.")
    ] = None
    limit: Annotated[int | None, Parameter(help="Only the first requests of the workload.")] = None
    log: Annotated[Path | None, Parameter(help="The folder that gets the run's log.")] = None
    page_size: Annotated[int, Parameter(help="Tokens a page.")] = 16
    num_pages: Annotated[
        int | None,
        Parameter(help="Pages; by default 65,536 for a trace, few for generated requests."),
    ] = None
    max_running: Annotated[int, Parameter(help="Requests that run together at most.")] = 256
    chunk_tokens: Annotated[int, Parameter(help="Prompt tokens a step at most.")] = 8192
    headroom: Annotated[
        int, Parameter(help="Tokens that an admission leaves for each running request at first.")
    ] = 16
    policy: Annotated[str, Parameter(help="What is evicted first: lru, lfu, fifo, slru.")] = "lru"
    seed: Annotated[int, Parameter(help="Of all that is drawn, and of the page keys.")] = 0
    sequential: Annotated[
        bool,
        Parameter(negative="", help="One request after another; the default pool never evicts."),
    ] = False
    overlap: Annotated[
        bool, Parameter(negative="", help="Dispatch a step before the one in front of it settles.")
    ] = False
    session_rate: Annotated[
        float, Parameter(help="Share of conversations that are streaming sessions.")
    ] = 0.0
    abort_rate: Annotated[float, Parameter(help="Share of requests that are aborted.")] = 0.0
    window: Annotated[
        int | None, Parameter(help="Add a sliding-window group of so many tokens.")
    ] = None
    host_pages: Annotated[
        int,
        Parameter(help="Host pages for the KV of retracted requests; 0: it is computed again."),
    ] = 0
    draft: Annotated[int, Parameter(help="Tokens guessed for each row and step.")] = 0
    acceptance: Annotated[float, Parameter(help="Chance that a guessed token is right.")] = 0.7
    check: Check = "event"
    json: AsJson = False


def simulate(options: SimulateOptions | None = None) -> int:
    """Run a workload through the engine, check each event, and write its log.

    Same arguments and seed: the same log, byte for byte. Exit status: 0 fine, 1 a violation was
    found, 2 the workload or the arguments are unusable.
    """
    options = SimulateOptions() if options is None else options
    if options.log is not None:
        refuse_log(options.log, option="--log")
    plan = _plan(options)
    with progress_bar("simulating", len(plan.workload), quiet=options.json) as bar:
        outcome = run_plan(plan, bar.reach)
    if options.json:
        print(json_format.dumps(as_json(outcome), default=str))
    else:
        print_report(outcome, options.log)
    return FOUND if outcome.findings else FINE


def _plan(options: SimulateOptions) -> SimulationPlan:
    config = _config(options)
    workload = _workload(options)
    pools = size_pools(
        workload,
        config,
        page_size=options.page_size,
        num_pages=_num_pages(options, workload, config),
        window=options.window,
        host_pages=options.host_pages,
    )
    clock = VirtualClock()
    return SimulationPlan(
        workload=workload,
        pools=pools,
        config=None if options.sequential else config,
        policy=options.policy,
        key_seed=options.seed,
        level=options.check,
        log=None if options.log is None else SteadyLog(options.log, clock_ns=clock),
        clock=clock,
    )


def _config(options: SimulateOptions) -> SchedulerConfig:
    loop_only = (
        *(options.overlap, options.draft, options.session_rate, options.abort_rate),
        options.host_pages,
    )
    if options.sequential and (any(loop_only) or options.window is not None):
        raise ConfigError(
            "--sequential takes one request after another: leave out --overlap, --draft,"
            " --session-rate, --abort-rate, --host-pages and --window"
        )
    return SchedulerConfig(
        max_running=1 if options.sequential else options.max_running,
        chunk_tokens=options.chunk_tokens,
        headroom_tokens=options.headroom,
        overlap=options.overlap,
        draft=options.draft,
        acceptance=options.acceptance,
        session_rate=options.session_rate,
        abort_rate=options.abort_rate,
        seed=options.seed,
    )


def _num_pages(options: SimulateOptions, workload: Workload, config: SchedulerConfig) -> int:
    if options.num_pages is not None:
        return options.num_pages
    least = least_pages(workload, config, options.page_size)
    if options.sequential:
        return max(least, pages_without_eviction(workload, options.page_size))
    return max(least, SYNTHETIC_PAGES if options.trace is None else TRACE_PAGES)


def _workload(options: SimulateOptions) -> Workload:
    if (options.trace is None) == (options.synthetic is None):
        raise ConfigError("name one workload: --trace FILE, or --synthetic N")
    if options.trace is not None:
        return read_mooncake(options.trace, limit=options.limit, seed=options.seed)
    assert options.synthetic is not None  # one of the two is there
    workload = generate(SyntheticConfig(num_requests=options.synthetic, seed=options.seed))
    return workload if options.limit is None else workload.first(options.limit)
