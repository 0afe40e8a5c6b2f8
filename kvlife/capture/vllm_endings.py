"""Facts from the calls that give blocks back for good: preemptions, ends of requests, resets."""

from __future__ import annotations

from collections.abc import Callable

from kvlife.capture import vllm_lines as ops
from kvlife.capture.call_tree import Call
from kvlife.capture.vllm_requests import PREEMPTED, RUNNING, Import
from kvlife.capture.vllm_slots import SlotFacts
from kvlife.events import Event, Evicted, Marked, PageLists, Released, Retracted
from kvlife.events.arrays import ints
from kvlife.ledger import EMPTY

# How vLLM's words for the end of a request read as reasons; any other is an abort.
_FINISHED = ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED", "FINISHED_REPETITION")


class EndingFacts:
    """Turns preemptions, ends and resets into facts, and holds their lines against the ledger."""

    def __init__(self, state: Import, slots: SlotFacts) -> None:
        """Facts go to the import's observer."""
        self._import = state
        self._found = state.found
        self._pool = state.pool
        self._slots = slots

    def preempt(self, call: Call, line: ops.PreemptRequest) -> None:
        """A running request lets its blocks go and waits again."""
        request, same = self._import.request(line.req), self._found.same
        row = self._import.row(line.req)
        self._found.place = (call.number, line.op)
        same("free_before", line.free_before, self._pool.num_free)
        computed = self._import.committed_len(line.req)
        same("num_computed_tokens_before", line.num_computed_tokens_before, computed)
        same("num_tokens", line.num_tokens, request.num_tokens)
        same("num_output_tokens", line.num_output_tokens, request.output_len)
        request.num_preemptions += 1
        same("num_preemptions", line.num_preemptions, request.num_preemptions)
        same("status", line.status, PREEMPTED)
        self._give_back(
            call, line.req, ("preempt",), lambda pages: Retracted(line.req, row, None, pages)
        )
        request.status, request.drafts = PREEMPTED, []
        self._import.preempted.append(line.req)
        self._found.place = (call.number, line.op)
        self._import.same_free(line)

    def end_request(self, call: Call, line: ops.FreeRequest) -> None:
        """A request ends, while it runs, waits, or was never admitted."""
        request, same = self._import.request(line.req), self._found.same
        self._found.place = (call.number, line.op)
        same("free_before", line.free_before, self._pool.num_free)
        same("num_prompt_tokens", line.num_prompt_tokens, request.prompt_len)
        same("num_output_tokens", line.num_output_tokens, request.output_len)
        same("num_computed_tokens", line.num_computed_tokens, self._import.committed_len(line.req))
        same("num_preemptions", line.num_preemptions, request.num_preemptions)
        row = self._import.ledger.requests.get(line.req)
        reason = "finished" if line.status in _FINISHED else "aborted"
        admitted = request.status in (RUNNING, PREEMPTED)

        def released(pages: PageLists) -> Event:
            return Released(line.req, row, reason, pages, EMPTY)

        self._give_back(call, line.req, ("finish", "abort"), released if admitted else None)
        del self._import.requests[line.req]
        self._import.ended.append(line.req)
        self._found.place = (call.number, line.op)
        self._import.same_free(line)

    def _give_back(
        self,
        call: Call,
        rid: str,
        reasons: tuple[str, ...],
        event_of: Callable[[PageLists], Event] | None,
    ) -> None:
        """Tell what a `free` inside the call gave back, and hold its lines against it."""
        frees = call.all_of(ops.Free)
        if len(frees) != 1:
            raise self._found.refuse(f"{len(frees)} calls of free were made inside it, not one")
        ((inner, free),) = frees
        self._found.place = (inner.number, free.op)
        self._found.same("table", free.table, self._import.table(rid))
        if free.why not in reasons:
            self._found.note(f"why is {free.why!r}, in a call for {reasons[0]}")
        given = inner.all_of(ops.FreeBlocks)
        blocks: list[list[int]] = [[] for _ in self._import.header.groups]
        before = self._pool.num_free
        for freed_by, line in given:
            self._found.place = (freed_by.number, line.op)
            self._found.same("why", line.why, free.why)
            if line.group >= len(blocks):
                raise self._found.refuse(f"group {line.group} of {len(blocks)} cache groups")
            blocks[line.group] += self._pool.known(line.blocks)[::-1]
        self._found.place = (inner.number, free.op)
        everything = [block for group in blocks for block in group]
        if event_of is not None:
            self._pool.tell(event_of(tuple(map(ints, blocks))), everything)
        elif everything:
            self._found.note("blocks are given back by a request that has none")
        for freed_by, line in given:
            self._found.place = (freed_by.number, line.op)
            self._slots.same_given_back(line)
            before += len(line.freed)
            self._found.same("free", line.free, before)
        self._found.place = (inner.number, free.op)
        self._import.same_free(free)

    def reset(self, call: Call, line: ops.SchedulerReset) -> None:
        """A reset of the prefix cache: forced, it preempts first; refused, it changes nothing."""
        resets = call.all_of(ops.ResetPrefixCache)
        for inner, preempted in call.all_of(ops.PreemptRequest):
            self.preempt(inner, preempted)
        for inner, reset in resets:
            self._found.place = (inner.number, reset.op)
            self._drop_hashes(reset)
            self._import.same_free(reset)
        self._found.place = (call.number, line.op)
        self._found.same("ok", [line.ok], [reset.ok for _call, reset in resets])
        self._import.same_free(line)

    def _drop_hashes(self, line: ops.ResetPrefixCache) -> None:
        in_use = self._pool.counted()
        self._found.same("ok", line.ok, not in_use)
        if not line.ok:
            self._pool.tell(Marked("reset_prefix_cache was refused: blocks are in use", idle=False))
            return
        self._import.sent["AllBlocksCleared"] += 1
        self._import.unwritten.clear()
        cached = self._pool.cached()
        if cached:
            pages = tuple(
                ints(block for block, (_key, of) in cached.items() if of == group)
                for group in range(len(self._import.header.groups))
            )
            self._pool.tell(Evicted("flush", pages), list(cached))
