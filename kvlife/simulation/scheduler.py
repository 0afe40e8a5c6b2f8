"""The scheduler loop: an engine embedded as a serving engine would embed it, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

from kvlife.engine import KvEngine
from kvlife.errors import OutOfPages
from kvlife.simulation.admission import Admission
from kvlife.simulation.endings import Endings
from kvlife.simulation.loop_state import LoopState
from kvlife.simulation.relief import Relief
from kvlife.simulation.request import Fate, Request
from kvlife.simulation.scheduler_config import SchedulerConfig
from kvlife.simulation.steps import Step, Steps
from kvlife.simulation.tally import SAMPLE_STEPS, Tally
from kvlife.simulation.virtual_time import NEVER_NS, VirtualClock
from kvlife.simulation.workload import Workload

# The headroom of admissions falls once in so many steps.
RELAX_STEPS = 32


class Scheduler:
    """Runs a workload through an engine: continuous batching with chunked prefill.

    A step decodes one token (or drafts) of each request that decodes, and computes a bounded number
    of prompt tokens. Where `config.overlap` is set, a step is dispatched before the one in front
    of it settles, so a request is found to have ended one step late, while its row is in flight.
    `clock` is moved by the loop; an engine that was given the same one writes virtual times.
    """

    def __init__(
        self,
        engine: KvEngine,
        workload: Workload,
        config: SchedulerConfig,
        *,
        clock: VirtualClock | None = None,
    ) -> None:
        loop = LoopState.begin(engine, workload, config, VirtualClock() if clock is None else clock)
        self._loop = loop
        self._endings = Endings(loop)
        self._admission = Admission(loop, self._endings)
        self._relief = Relief(loop, self._endings, self._land_flying)
        self._steps = Steps(loop, self._endings)
        self._flying: Step | None = None
        self._num_arrived = 0
        self._next_arrival_ns = int(workload.arrival_ns[0])

    @property
    def tally(self) -> Tally:
        """What was counted so far."""
        return self._loop.tally

    @property
    def engine_ns(self) -> int:
        """Wall time spent in the engine's commands, its checks and its log included."""
        return self._loop.watch.ns

    def run(self, progress: Callable[[int], None] | None = None) -> Tally:
        """Run to the end: every request is finished or aborted, every session closed.

        `progress` is called now and then with the number of requests that are done. Ends with an
        idle mark in the log. Raises `InvariantViolation` and `LogError` as the engine
        does.
        """
        loop = self._loop
        while self.advance():
            if progress is not None and loop.tally.steps % SAMPLE_STEPS == 0:
                progress(loop.tally.num_done)
        for session in list(loop.sessions.idle):
            self._endings.close_session(session)
        loop.tally.sample(loop.engine, 0)
        with loop.watch:
            loop.engine.mark("end", idle=True)
        return loop.tally

    def advance(self) -> bool:
        """Do one step, or wait for the next arrival; False once there is nothing left to do."""
        loop = self._loop
        now_ns = loop.clock.now_ns
        if self._next_arrival_ns <= now_ns:
            self._arrive()
        if loop.sessions.next_closing_ns <= now_ns:
            self._close_due()
        if loop.aborts.due_now:
            for request in loop.aborts.take_now():
                self._endings.abort(request)
        step = self._launch()
        if step is None:
            return self._land_flying() or self._wait()
        if loop.aborts.due_in_step:
            for request in loop.aborts.take_in_step():
                self._endings.abort(request)
        if loop.config.overlap:
            self._land_flying()
            self._flying = step
            self._steps.graduate(step)
        else:
            self._steps.graduate(step)
            self._land(step)
        if (step.number + 1) % RELAX_STEPS == 0:
            loop.relax(RELAX_STEPS)
        if step.number % SAMPLE_STEPS == 0:
            loop.tally.sample(loop.engine, loop.num_running)
        return True

    def _launch(self) -> Step | None:
        loop = self._loop
        loop.engine.step = self._steps.next_number
        chunks = self._admission.plan_chunks()
        if not chunks and not len(loop.decoding):
            return None
        self._relief.make_room(chunks)
        while chunks or len(loop.decoding):
            try:
                return self._steps.launch(chunks)
            except OutOfPages:
                # Not all that looks evictable is: then what was not enough gives way to more.
                if not self._relief.give_way(chunks):
                    raise
        return None

    def _land(self, step: Step) -> None:
        self._loop.clock.now_ns += step.duration_ns
        self._steps.land(step)

    def _land_flying(self) -> bool:
        """Settle the step in flight; False where there is none."""
        step, self._flying = self._flying, None
        if step is not None:
            self._land(step)
        return step is not None

    def _arrive(self) -> None:
        loop, workload = self._loop, self._loop.workload
        while self._next_arrival_ns <= loop.clock.now_ns:
            request = self._request(self._num_arrived)
            self._num_arrived += 1
            left = workload.arrival_ns[self._num_arrived :]
            self._next_arrival_ns = int(left[0]) if len(left) else NEVER_NS
            if loop.sessions.may_begin(request):
                loop.queue.join(request)
            if request.fate is Fate.WAITING:
                loop.aborts.due_now.append(request)

    def _request(self, idx: int) -> Request:
        loop = self._loop
        prompt_len = int(loop.workload.prompt_len[idx])
        return Request(
            idx=idx,
            rid=f"r{idx}",
            prompt_len=prompt_len,
            stop_at=loop.aborts.stop_at(idx, int(loop.workload.output_len[idx])),
            fate=loop.aborts.fate(idx),
            session=loop.sessions.session_of(idx),
            target_len=prompt_len,
        )

    def _close_due(self) -> None:
        loop = self._loop
        idle, running = loop.sessions.due_idle(loop.clock.now_ns)
        for session in idle:
            self._endings.close_session(session)
        for request in running:
            self._endings.close_in_turn(request)

    def _wait(self) -> bool:
        """Go on to the next arrival, or to the next client that leaves; False at the end."""
        loop = self._loop
        next_ns = min(self._next_arrival_ns, loop.sessions.next_closing_ns)
        if next_ns == NEVER_NS:
            return False
        loop.clock.now_ns = max(loop.clock.now_ns, next_ns)
        return True
