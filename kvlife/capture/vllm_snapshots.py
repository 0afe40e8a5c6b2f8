"""A capture's snapshots, held against the ledger in full, and its counts at the end."""

from __future__ import annotations

from kvlife.capture import vllm_lines as ops
from kvlife.capture.call_tree import Call
from kvlife.capture.vllm_requests import Import
from kvlife.events import Marked

# The labels that say that nothing runs and nothing waits.
_IDLE = ("start", "idle", "end")


class SnapshotFacts:
    """Compares snapshots; where a run is idle, the ledger must hold nothing but cache."""

    def __init__(self, state: Import) -> None:
        """Nothing has been compared."""
        self._import = state
        self._found = state.found
        self.num_compared = 0

    def compare(self, call: Call, line: ops.Snapshot) -> None:
        """Tables, counts, hashes, and the blocks that are free or evictable; then an audit."""
        state, same, pool = self._import, self._found.same, self._import.pool
        self._found.place = (call.number, line.op)
        same("tables", line.tables, {rid: state.table(rid) for rid in state.running()})
        counts = {int(block): num for block, num in line.refs.items() if block != "0"}
        same("refs", counts, pool.counted())
        cached = pool.cached()
        same("hashes", {int(block): named for block, named in line.hashes.items()}, cached)
        same("cached_keys", line.cached_keys, len(set(cached.values())))
        free = pool.free_blocks()
        same("blocks that are free or evictable", set(line.free_queue), free)
        same("length of free_queue", len(line.free_queue), len(free))
        state.same_queues(line)
        state.same_free(line)
        state.observer.audit()
        if line.label in _IDLE:
            same("running when idle", line.running, [])
            pool.tell(Marked(f"vLLM snapshot: {line.label}", idle=True))
        self.num_compared += 1

    def finish(self, call: Call, line: ops.End, num_calls: dict[str, int]) -> None:
        """The last line: its counts are those of the lines before it."""
        self._found.place = (call.number, line.op)
        calls = {op: num for op, num in num_calls.items() if op != line.op}
        self._found.same("counts", line.counts, calls)
        self._found.same("steps", line.steps, calls.get("schedule", 0))
        if line.event_counts:  # none where vLLM sent no events of its own
            self._found.same("event_counts", line.event_counts, dict(self._import.sent))
        self._import.same_free(line)
