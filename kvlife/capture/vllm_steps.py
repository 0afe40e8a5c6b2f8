"""Facts from the scheduler: requests that arrive, steps that begin, and their results."""

from __future__ import annotations

from kvlife.capture import vllm_lines as ops
from kvlife.capture.block_hashes import HashChain
from kvlife.capture.call_tree import Call
from kvlife.capture.vllm_endings import EndingFacts
from kvlife.capture.vllm_requests import PREEMPTED, WAITING, Import, Request
from kvlife.capture.vllm_slots import SlotFacts
from kvlife.events import Committed, RolledBack, StepDispatched, StepSettled
from kvlife.events.arrays import I32, NO_LINKS, ints
from kvlife.ledger import EMPTY

# What vLLM schedules as the drafts of a request that it resumes, for which nothing was proposed.
_PLACEHOLDER = -1
_LENGTH_CAPPED = "FINISHED_LENGTH_CAPPED"


class StepFacts:
    """Turns arrivals, steps and results into facts, and holds their lines against the ledger."""

    def __init__(self, state: Import) -> None:
        """Facts go to the import's observer."""
        self._import = state
        self._found = state.found
        self._slots = SlotFacts(state)
        self._endings = EndingFacts(state, self._slots)

    def arrive(self, call: Call, line: ops.AddRequest) -> None:
        """A request arrives; it has no place in the ledger until it is admitted."""
        state, same = self._import, self._found.same
        self._found.place = (call.number, line.op)
        if line.req in state.requests:
            raise self._found.refuse(f"request {line.req!r} has arrived before")
        chain = HashChain(bytes.fromhex(state.header.none_hash), state.block_size)
        request = Request(line.req, line.num_prompt_tokens, line.max_tokens, chain)
        request.tokens.extend(line.prompt_token_ids)
        state.requests[line.req] = request
        same("num_prompt_tokens", line.num_prompt_tokens, len(line.prompt_token_ids))
        same("status", line.status, WAITING)
        if state.recompute:
            same("block_hashes", line.block_hashes, request.tokens.hashes)
        state.same_free(line)

    def schedule(self, call: Call, line: ops.Schedule) -> None:
        """A step is put together, and handed to the device where it has work."""
        state = self._import
        if state.step is not None:
            raise self._found.refuse("the result of the step before has not come")
        granted: dict[str, ops.AllocateSlots] = {}
        for inner in call.inside:
            match inner.line:
                case ops.AllocateSlots() as asked:
                    self._slots.allocate(inner, asked)
                    if asked.req in granted:
                        self._found.note("the request was granted slots in this step before")
                    if asked.ok:
                        granted[asked.req] = asked
                case ops.GetComputedBlocks() as lookup:
                    self._slots.look_up(inner, lookup)
                case ops.PreemptRequest() as victim:
                    self._endings.preempt(inner, victim)
                    granted.pop(victim.req, None)
        self._found.place = (call.number, line.op)
        self._same_grants(line, granted)
        self._same_lengths(line)
        self._same_drafts(line)
        self._writes_what_it_reads(call, line)
        state.step, state.ended, state.preempted = line, [], []
        if line.scheduled:
            rows = self._rows(list(line.scheduled))
            state.pool.tell(StepDispatched(line.step, rows))

    def _rows(self, rids: list[str]) -> I32:
        return ints(self._import.row(rid) for rid in rids)

    def _same_grants(self, line: ops.Schedule, granted: dict[str, ops.AllocateSlots]) -> None:
        same = self._found.same
        tokens = {rid: asked.num_new_tokens for rid, asked in granted.items()}
        same("scheduled", line.scheduled, tokens)
        same("total_tokens", line.total_tokens, sum(tokens.values()))
        for what, said, status in (
            ("new", line.new, WAITING),
            ("resumed", line.resumed, PREEMPTED),
        ):
            bound = [rid for rid, asked in granted.items() if asked.status == status]
            same(what, sorted(said), sorted(bound))
        same("preempted", sorted(line.preempted), sorted(self._import.preempted))
        same("finished_before", sorted(line.finished_before), sorted(self._import.ended))

    def _same_lengths(self, line: ops.Schedule) -> None:
        state, same = self._import, self._found.same
        state.same_queues(line)
        after = {rid: state.committed_len(rid) + line.scheduled.get(rid, 0) for rid in line.running}
        same("computed_after", line.computed_after, after)
        state.same_free(line)
        usable = state.header.num_blocks - 1
        same("usage", round(line.usage, 6), round(1.0 - state.pool.num_free / usable, 6))

    def _same_drafts(self, line: ops.Schedule) -> None:
        for rid, spec in line.spec.items():
            drafts = self._import.request(rid).drafts
            if set(spec) != {_PLACEHOLDER}:
                self._found.same(f"spec of {rid}", spec, drafts[: len(spec)])
            if len(spec) >= max(line.scheduled.get(rid, 0), 1):
                self._found.note(f"{len(spec)} drafts of {rid} leave it no token of its own")
        for rid in line.scheduled:
            self._import.request(rid).drafts = []

    def _writes_what_it_reads(self, call: Call, line: ops.Schedule) -> None:
        """Who hits a block that has no content yet runs in the step that writes it, or after it.

        A publisher that still runs is seen by written-before-shared; here it may be gone, and its
        block have kept the hash.
        """
        unwritten = self._import.unwritten
        for inner, asked in call.all_of(ops.AllocateSlots):
            for _touched, touch in inner.all_of(ops.Touch):
                for block in touch.blocks:
                    writer = unwritten.get(block)
                    if asked.req in line.scheduled and writer not in (None, *line.scheduled):
                        self._found.place = (inner.number, asked.op)
                        self._found.note(
                            f"the hit has block {block}, which {writer} was to write and never did"
                        )
        self._found.place = (call.number, line.op)

    def propose(self, call: Call, line: ops.DraftTokens) -> None:
        """Drafts for the next step; no fact comes of them until they are scheduled."""
        self._found.place = (call.number, line.op)
        for rid, drafts in line.drafts.items():
            # A request that ended with the step before may still have drafts proposed.
            if rid in self._import.requests:
                self._import.requests[rid].drafts = drafts
        self._import.same_free(line)

    def settle(self, call: Call, line: ops.UpdateFromOutput) -> None:
        """The step's result is in: it settles, lengths are committed, requests may end."""
        state = self._import
        self._found.place = (call.number, line.op)
        step, state.step = state.step, None
        if step is None:
            raise self._found.refuse("a result comes of no step")
        if step.scheduled:
            state.pool.tell(StepSettled(step.step, EMPTY, state.ledger.no_pages))
            self._commit(call, line, step)
            state.unwritten = {
                block: rid for block, rid in state.unwritten.items() if rid not in step.scheduled
            }
        stopped, ended = [], []
        for inner in call.inside:
            match inner.line:
                case ops.AppendTokens() as got:
                    self._append(inner, got, step)
                    stopped += [got.req] if got.stopped else []
                case ops.FreeRequest() as free:
                    self._endings.end_request(inner, free)
                    ended.append(free.req)
        self._found.place = (call.number, line.op)
        self._found.same("the requests that end", ended, stopped)
        state.same_queues(line)
        running = {rid: state.committed_len(rid) for rid in line.running}
        self._found.same("computed_after", line.computed_after, running)
        state.same_free(line)

    def _commit(self, call: Call, line: ops.UpdateFromOutput, step: ops.Schedule) -> None:
        """Commit what each row of the step has computed, and roll rejected drafts back."""
        lengths = {got.req: got.num_computed_tokens for _, got in call.all_of(ops.AppendTokens)}
        computed = {rid: lengths.get(rid, line.computed_after.get(rid)) for rid in step.scheduled}
        grown, shrunk = [], []
        for rid, length in computed.items():
            if length is None:
                self._found.note(f"it does not say what {rid} has computed")
                continue
            rejected = step.computed_after.get(rid, 0) - length
            if not 0 <= rejected <= len(step.spec.get(rid, ())):
                self._found.note(
                    f"{rid} has {length} tokens computed, of {step.computed_after.get(rid)} with"
                    f" {len(step.spec.get(rid, ()))} drafts"
                )
            if length != self._import.committed_len(rid):
                grown.append((rid, length))
            if rejected > 0:
                shrunk.append((rid, length))
        if grown:
            rows = self._rows([rid for rid, _length in grown])
            self._import.pool.tell(Committed(rows, ints(length for _rid, length in grown)))
        self._roll_back(shrunk)

    def _roll_back(self, shrunk: list[tuple[str, int]]) -> None:
        """Rejected drafts are no longer allocated, as far as their blocks do not stay."""
        ledger, size = self._import.ledger, self._import.block_size
        cut = []
        for rid, committed in shrunk:
            row = self._import.row(rid)
            allocated = int(ledger.rows.allocated[row])
            # vLLM keeps the last block too: at least one position of it stays allocated.
            end = max(committed, (allocated - 1) // size * size + 1)
            if end < allocated:
                cut.append((row, end, committed))
        if cut:
            rows, ends, lengths = (ints(column) for column in zip(*cut, strict=True))
            self._import.pool.tell(RolledBack(rows, ends, lengths, ledger.no_pages, NO_LINKS))

    def _append(self, call: Call, line: ops.AppendTokens, step: ops.Schedule) -> None:
        """A request gets the tokens that the step generated for it."""
        self._found.place = (call.number, line.op)
        request, same = self._import.request(line.req), self._found.same
        if line.req not in step.scheduled:
            self._found.note(f"{line.req} was not in the step")
        request.tokens.extend(line.tokens)
        same("num_tokens", line.num_tokens, request.num_tokens)
        computed = self._import.committed_len(line.req)
        same("num_computed_tokens", line.num_computed_tokens, computed)
        if not line.stopped:
            # The last token is always the model's own, and those before it are drafts it accepted.
            drafts = len(step.spec.get(line.req, ()))
            rejected = step.computed_after.get(line.req, 0) - computed
            same("number of tokens", len(line.tokens), 1 + drafts - rejected)
            same("status", line.status, request.status)
        self._within_length(line, request)
        self._import.same_free(line)

    def _within_length(self, line: ops.AppendTokens, request: Request) -> None:
        """A request generates no more than it asked for, and all of that if its length ends it."""
        full = request.output_len >= request.max_output_len
        full |= request.num_tokens >= self._import.header.max_model_len
        if request.output_len > request.max_output_len or (
            line.status == _LENGTH_CAPPED and not full
        ):
            self._found.note(
                f"{request.output_len} tokens are generated, of {request.max_output_len} at most,"
                f" and its status is {line.status}"
            )

    def finish(self, call: Call) -> None:
        """Requests are ended from outside; one that is unknown or gone is passed over by vLLM."""
        for inner, free in call.all_of(ops.FreeRequest):
            self._endings.end_request(inner, free)
        self._found.place = (call.number, call.line.op)
        self._import.same_free(call.line)

    def reset(self, call: Call, line: ops.SchedulerReset) -> None:
        """The prefix cache is reset."""
        self._endings.reset(call, line)
