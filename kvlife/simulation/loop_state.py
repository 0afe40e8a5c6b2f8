"""What the parts of the scheduler loop share."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from kvlife.engine import KvEngine
from kvlife.simulation.abort_plan import AbortPlan
from kvlife.simulation.decoding import DecodeSet
from kvlife.simulation.drafts import DraftLuck
from kvlife.simulation.follow_ups import find_turns
from kvlife.simulation.request import Request
from kvlife.simulation.room import Room
from kvlife.simulation.scheduler_config import SchedulerConfig
from kvlife.simulation.session_book import SessionBook
from kvlife.simulation.stopwatch import Stopwatch
from kvlife.simulation.tally import Tally
from kvlife.simulation.virtual_time import VirtualClock
from kvlife.simulation.waiting import WaitingQueue
from kvlife.simulation.workload import Workload


@attrs.frozen
class Chunk:
    """A part of a request's target that a step computes: up to `upto_len` tokens of it."""

    request: Request
    upto_len: int

    @property
    def num_tokens(self) -> int:
        """How many tokens are computed."""
        return self.upto_len - self.request.done_len


@attrs.define(eq=False)
class LoopState:
    """One run of the loop: the engine, who waits, who runs, and what is counted.

    `blocked` says that the head of the queue did not fit, and nothing has gone since. `headroom`
    is what an admission leaves for each running request, in tokens.
    """

    engine: KvEngine
    workload: Workload
    config: SchedulerConfig
    clock: VirtualClock
    queue: WaitingQueue
    prefills: list[Request]
    decoding: DecodeSet
    room: Room
    sessions: SessionBook
    aborts: AbortPlan
    luck: DraftLuck
    watch: Stopwatch
    tally: Tally
    windowed: bool
    headroom: float
    blocked: bool = False

    @classmethod
    def begin(
        cls, engine: KvEngine, workload: Workload, config: SchedulerConfig, clock: VirtualClock
    ) -> LoopState:
        """The state before the first arrival."""
        seeds = np.random.SeedSequence(config.seed).spawn(3)
        for_sessions, for_aborts, for_drafts = (
            np.random.Generator(np.random.PCG64(seed)) for seed in seeds
        )
        return cls(
            engine=engine,
            workload=workload,
            config=config,
            clock=clock,
            queue=WaitingQueue(),
            prefills=[],
            decoding=DecodeSet(),
            room=Room(engine),
            sessions=SessionBook(find_turns(workload), config, for_sessions),
            aborts=AbortPlan(len(workload), config.abort_rate, for_aborts),
            luck=DraftLuck(config.draft, config.acceptance, for_drafts),
            watch=Stopwatch(),
            tally=Tally(requests=len(workload)),
            windowed=bool(engine.ledger.layout.window_groups),
            headroom=config.headroom_tokens,
        )

    @property
    def num_running(self) -> int:
        """Requests in prefill and decode."""
        return len(self.prefills) + len(self.decoding)

    def relax(self, num_steps: int) -> None:
        """So many steps have passed: admit with less headroom, until something is retracted."""
        if self.headroom > 0:
            config = self.config
            less = config.headroom_tokens / config.headroom_steps * num_steps
            self.headroom = max(0.0, self.headroom - less)
            self.blocked = False

    def pages_of(self, num_tokens: int) -> list[int]:
        """Pages per cache group that hold so many tokens from a page's start on."""
        return [-(-num_tokens // group.page_size) for group in self.engine.ledger.layout.groups]

    def chunk_pages(self, chunks: Sequence[Chunk]) -> list[int]:
        """New pages per cache group of chunks."""
        need = [0] * len(self.engine.ledger.layout.groups)
        for chunk in chunks:
            old, new = self.pages_of(chunk.request.done_len), self.pages_of(chunk.upto_len)
            need = [num + high - low for num, high, low in zip(need, new, old, strict=True)]
        return need
