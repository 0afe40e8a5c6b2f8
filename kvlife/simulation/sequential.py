"""One request after another: what a cache that all requests share can give at the most."""

from __future__ import annotations

from collections.abc import Callable

from kvlife.engine import KvEngine
from kvlife.simulation.stopwatch import Stopwatch
from kvlife.simulation.tally import Tally
from kvlife.simulation.virtual_time import VirtualClock, step_ns
from kvlife.simulation.workload import Workload


class SequentialRun:
    """Admits, computes and finishes each request before the next; in virtual time, as a scheduler.

    Each one publishes its prompt and its answer, the last token apart, whose KV nobody computes.
    """

    def __init__(
        self, engine: KvEngine, workload: Workload, *, clock: VirtualClock | None = None
    ) -> None:
        self._engine = engine
        self._workload = workload
        self._clock = VirtualClock() if clock is None else clock
        self._watch = Stopwatch()
        self.tally = Tally(requests=len(workload))

    @property
    def engine_ns(self) -> int:
        """Wall time spent in the engine's commands, its checks and its log included."""
        return self._watch.ns

    def run(self, progress: Callable[[int], None] | None = None) -> Tally:
        """Run to the end, and mark it in the log; `progress` gets the number of requests done."""
        for idx in range(len(self._workload)):
            self._serve(idx)
            if progress is not None:
                progress(idx + 1)
        self.tally.sample(self._engine, 0)
        with self._watch:
            self._engine.mark("end", idle=True)
        return self.tally

    def _serve(self, idx: int) -> None:
        engine, workload, tally = self._engine, self._workload, self.tally
        prompt_len, output_len = int(workload.prompt_len[idx]), int(workload.output_len[idx])
        rid, tokens = f"r{idx}", workload.tokens(idx)
        self._clock.now_ns = max(self._clock.now_ns, int(workload.arrival_ns[idx]))
        with self._watch:
            got = engine.admit(rid, tokens[:prompt_len])
            engine.allocate([rid], [prompt_len + output_len - 1])
            engine.commit([rid])
            engine.finish(rid, tokens)
        computed = prompt_len - got.prefix_len
        self._clock.now_ns += step_ns(computed, 0) + (output_len - 1) * step_ns(0, 1)
        tally.steps += output_len
        tally.completed += 1
        tally.prompt_tokens += prompt_len
        tally.hit_tokens += got.matched_len
        tally.prefill_tokens += computed
        tally.output_tokens += output_len
