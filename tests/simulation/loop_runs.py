"""Small runs of the scheduler loop whose events are kept, for tests that count by hand."""

from __future__ import annotations

import attrs
import numpy as np

from kvlife.engine import KvEngine
from kvlife.events import Event
from kvlife.invariants import Checker
from kvlife.simulation import (
    Scheduler,
    SchedulerConfig,
    Tally,
    Turns,
    VirtualClock,
    Workload,
    size_pools,
)


class EventTape:
    """Stands in for a log: keeps each event with its seq, step and time."""

    wants_snapshot = False
    log_bytes = 0
    num_gaps = 0

    def __init__(self):
        self.recorded = []
        self.closed_with = None

    def start(self, header):
        self.header = header

    def append(self, seq, step, time_ns, events):
        for offset, event in enumerate(events):
            self.recorded.append((seq + offset, step, time_ns, event))

    def close(self, digest):
        self.closed_with = digest


@attrs.define(eq=False)
class LoopRun:
    """What a run left behind."""

    tally: Tally
    engine: KvEngine
    clock: VirtualClock
    tape: EventTape

    @property
    def events(self) -> list[Event]:
        return [event for _, _, _, event in self.tape.recorded]

    def of(self, *kinds: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kinds)]

    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


def run_loop(
    workload: Workload,
    config: SchedulerConfig | None = None,
    *,
    page_size: int = 4,
    num_pages: int = 64,
    window: int | None = None,
    policy: str = "lru",
    host_pages: int = 0,
) -> LoopRun:
    """Run a workload to its end under a checker that raises, and close the engine."""
    config = SchedulerConfig(headroom_tokens=0) if config is None else config
    pools = size_pools(
        workload,
        config,
        page_size=page_size,
        num_pages=num_pages,
        window=window,
        host_pages=host_pages,
    )
    clock, tape = VirtualClock(), EventTape()
    engine = KvEngine(
        pools, log=tape, checker=Checker(audit_every=50), policy=policy, key_seed=1, clock=clock
    )
    tally = Scheduler(engine, workload, config, clock=clock).run()
    engine.close()
    return LoopRun(tally, engine, clock, tape)


def tokens(first: int, length: int) -> np.ndarray:
    """`length` token ids from `first` on, so that ranges that do not meet share nothing."""
    return np.arange(first, first + length, dtype=np.int32)


def workload_of(*requests: tuple[int, np.ndarray, int], turns: Turns | None = None) -> Workload:
    """A workload of (arrival in ns, prompt, answer length); answers share nothing."""
    arrivals, prompts, lens = zip(*requests, strict=True)
    outputs = [tokens(1_000_000 * (idx + 1), length) for idx, length in enumerate(lens)]
    return attrs.evolve(Workload.of_tokens(arrivals, prompts, outputs), turns=turns)
