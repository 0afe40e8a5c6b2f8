"""Facts from `allocate_slots`: what a request is given for a step, in the order vLLM does it.

First the blocks that leave a window are given back, then a hit is taken, then blocks are handed
out (each losing the hash it may still have), and then full blocks get their hash, before the model
has written them.
"""

from __future__ import annotations

import numpy as np

from kvlife.capture import vllm_lines as ops
from kvlife.capture.call_tree import Call
from kvlife.capture.vllm_pool import NULL_BLOCK
from kvlife.capture.vllm_requests import PREEMPTED, RUNNING, Import, Request
from kvlife.events import Admitted, Allocated, Evicted, Protected, Resumed, WindowEvicted
from kvlife.events.arrays import NO_LINKS, ints
from kvlife.ledger import RowState


class SlotFacts:
    """Turns lookups and allocations into facts, and holds their lines against the ledger."""

    def __init__(self, state: Import) -> None:
        """Facts go to the import's observer."""
        self._import = state
        self._found = state.found
        self._pool = state.pool
        self._num_groups = len(state.header.groups)

    def look_up(self, call: Call, line: ops.GetComputedBlocks) -> None:
        """A lookup changes nothing; what it found must be there, and be the request's tokens."""
        request, same = self._import.request(line.req), self._found.same
        self._found.place = (call.number, line.op)
        same("num_tokens", line.num_tokens, request.num_tokens)
        same("num_preemptions", line.num_preemptions, request.num_preemptions)
        lists = (line.group_blocks, line.group_refs, line.group_hashes)
        same("number of groups", [len(values) for values in lists], [self._num_groups] * 3)
        for blocks, refs, hashes in zip(*lists, strict=False):
            same("hit_tokens", line.hit_tokens, len(blocks) * self._import.block_size)
            self._pool.same_counts(blocks, refs)
            self._pool.same_hashes(blocks, hashes)
            if self._import.recompute:
                named = [block != NULL_BLOCK for block in blocks]
                own = request.tokens.hashes[: len(blocks)]
                wanted = [key for key, kept in zip(own, named, strict=False) if kept]
                found = [key for key, kept in zip(hashes, named, strict=False) if kept]
                same("hashes of the hit", found, wanted)
        self._import.same_free(line)
        request.lookup = line

    def allocate(self, call: Call, line: ops.AllocateSlots) -> None:
        """One call of allocate_slots; refused, it may still have moved a window."""
        state, same = self._import, self._found.same
        request = state.request(line.req)
        self._found.place = (call.number, line.op)
        same("free_before", line.free_before, self._pool.num_free)
        same("status", line.status, request.status)
        same("num_tokens", line.num_tokens, request.num_tokens)
        same("num_prompt_tokens", line.num_prompt_tokens, request.prompt_len)
        same("num_computed_tokens", line.num_computed_tokens, state.committed_len(line.req))
        waits = request.status != RUNNING
        if waits and request.lookup is None:
            self._found.note("no lookup came before it")
        hit = request.lookup.hit_tokens if waits and request.lookup else 0
        same("num_new_computed_tokens", line.num_new_computed_tokens, hit)
        for inner, gone in call.all_of(ops.FreeBlocks):
            self._move_window(inner, gone)
        if line.ok and waits:
            self._bind(call, line, request)
        elif call.all_of(ops.Touch):
            self._found.note("a hit is taken by a request that runs already, or is refused")
        taken = self._take(call, line)
        self._publish(call, line, request)
        self._found.place = (call.number, line.op)
        same("table", line.table, state.table(line.req))
        same("new_blocks", line.new_blocks, taken if line.ok else None)
        state.same_free(line)

    def _move_window(self, call: Call, line: ops.FreeBlocks) -> None:
        self._found.place = (call.number, line.op)
        self._found.same("why", line.why, "window_skip")
        self._same_group(line)
        row, ledger = self._import.row(line.req), self._import.ledger
        blocks = self._pool.known(line.blocks)[::-1]
        table = ledger.pages_of(row, line.group).tolist()
        passed = [table.index(block) + 1 for block in blocks if block in table]
        window_idx = ledger.layout.groups[line.group].window_idx
        old = 0 if window_idx is None else int(ledger.rows.cursors[window_idx, row])
        cursor = max(old, max(passed, default=0) * self._import.block_size)
        self._pool.tell(
            WindowEvicted(line.group, ints([row]), ints([cursor]), ints(blocks)), blocks
        )
        self.same_given_back(line)
        self._import.same_free(line)

    def same_given_back(self, line: ops.FreeBlocks) -> None:
        """Counts, hashes, and which blocks are free, of blocks that were given back."""
        blocks = self._pool.known(line.blocks)
        self._pool.same_counts(line.blocks, line.refs)
        self._pool.same_hashes(line.blocks, line.hashes)
        refs = self._pool.refs(blocks)
        unused = [block for block, count in zip(blocks, refs, strict=True) if not count]
        self._found.same("freed", line.freed, unused)

    def _same_group(self, line: ops.PoolLine) -> None:
        if line.group >= self._num_groups:
            raise self._found.refuse(f"group {line.group} of {self._num_groups} cache groups")

    def _bind(self, call: Call, line: ops.AllocateSlots, request: Request) -> None:
        pages: list[list[int]] = [[] for _ in range(self._num_groups)]
        num_free = self._pool.num_free
        for inner, touch in call.all_of(ops.Touch):
            self._found.place = (inner.number, touch.op)
            self._same_group(touch)
            pages[touch.group] += self._pool.known(touch.blocks)
            refs = self._pool.refs(touch.blocks)
            idle = [block for block, num in zip(touch.blocks, refs, strict=True) if not num]
            self._found.same("was_free", touch.was_free, idle)
            num_free -= len(idle)
            self._found.same("free", touch.free, num_free)
        self._found.place = (call.number, line.op)
        if request.lookup is not None:
            hit = [self._pool.known(blocks) for blocks in request.lookup.group_blocks]
            self._found.same("blocks of the hit", pages, hit)
        self._tell_bound(line, request, pages)
        for inner, touch in call.all_of(ops.Touch):
            self._found.place = (inner.number, touch.op)
            self._pool.same_counts(touch.blocks, touch.refs)
            self._pool.same_hashes(touch.blocks, touch.hashes)
        request.status, request.lookup = RUNNING, None

    def _tell_bound(
        self, line: ops.AllocateSlots, request: Request, pages: list[list[int]]
    ) -> None:
        ledger, prefix = self._import.ledger, line.num_new_computed_tokens
        free_rows = np.flatnonzero(ledger.rows.state == RowState.FREE)
        if not free_rows.size:
            raise self._found.refuse(
                f"request {line.req!r} is admitted, and {self._import.header.max_num_seqs} run"
            )
        # In a window group a hit lacks its front: those positions are behind the cursor.
        cursors = tuple(
            max(prefix - len(pages[group.idx]) * group.page_size, 0)
            for group in ledger.layout.window_groups
        )
        arrays = tuple(map(ints, pages))
        row, touched = int(free_rows[0]), [block for blocks in pages for block in blocks]
        if request.status == PREEMPTED:
            event: Admitted | Resumed = Resumed(
                line.req, row, 0, request.num_tokens, prefix, 0, cursors, arrays, prefix,
                ledger.no_pages,
            )  # fmt: skip
        else:
            event = Admitted(line.req, row, 0, request.prompt_len, prefix, 0, cursors, arrays)
        self._pool.tell(event, touched)

    def _take(self, call: Call, line: ops.AllocateSlots) -> list[list[int]]:
        taken: list[list[int]] = [[] for _ in range(self._num_groups)]
        num_free = self._pool.num_free
        for inner, new in call.all_of(ops.GetNewBlocks):
            self._found.place = (inner.number, new.op)
            self._same_group(new)
            taken[new.group] += self._pool.known(new.blocks)
            num_free -= len(new.blocks)
            self._evict(inner, new, num_free)
            self._found.place = (inner.number, new.op)
            self._found.same("n", new.n, len(new.blocks))
            self._found.same("free", new.free, num_free)
        self._found.place = (call.number, line.op)
        self._tell_allocated(line, taken)
        for inner, new in call.all_of(ops.GetNewBlocks):
            self._found.place = (inner.number, new.op)
            self._pool.same_counts(new.blocks, new.refs)
        return taken

    def _evict(self, call: Call, new: ops.GetNewBlocks, num_free: int) -> None:
        asked: list[int] = []
        for inner, line in call.all_of(ops.MaybeEvictCachedBlock):
            self._found.place = (inner.number, line.op)
            (block,) = line.blocks
            self._pool.known(line.blocks)
            self._found.same("group", line.group, new.group)
            self._found.same("refs", line.refs, self._pool.refs(line.blocks))
            held = [key for key in self._pool.hashes(line.blocks) if key is not None]
            self._found.same("hashes", line.hashes, held)
            groups = [self._pool.group(block)] if held else []
            self._found.same("hash_groups", line.hash_groups, groups)
            self._found.same("evicted", line.evicted, bool(held))
            self._found.same("free", line.free, num_free)
            if line.evicted:
                pages = list(self._import.ledger.no_pages)
                pages[self._pool.group(block)] = ints([block])
                self._pool.tell(Evicted("pressure", tuple(pages)), [block])
                self._import.sent["BlockRemoved"] += 1
                self._import.unwritten.pop(block, None)
            asked.append(block)
        self._found.place = (call.number, new.op)
        if asked or self._import.header.prefix_caching:
            self._found.same("blocks", new.blocks, asked)

    def _tell_allocated(self, line: ops.AllocateSlots, taken: list[list[int]]) -> None:
        if not line.ok:
            if any(taken):
                self._found.note("blocks are handed out, and the allocation is refused")
            return
        state = self._import
        row = state.row(line.req)
        wanted = (
            line.num_computed_tokens
            + line.num_new_computed_tokens
            + line.num_new_tokens
            + line.num_lookahead_tokens
        )
        # Blocks kept from drafts that were rejected stay allocated.
        held = int(state.ledger.rows.allocated[row])
        allocated = max(min(wanted, state.header.max_model_len), held)
        if allocated > held or any(taken):
            pages = tuple(map(ints, taken))
            self._pool.tell(Allocated(ints([row]), ints([allocated]), pages))

    def _publish(self, call: Call, line: ops.AllocateSlots, request: Request) -> None:
        lines = call.all_of(ops.CacheFullBlocks)
        if not lines:
            return
        state = self._import
        row = state.row(line.req)
        low = int(state.ledger.rows.protected[row]) // state.block_size
        high = lines[0][1].num_full_blocks
        width = state.ledger.layout.groups[0].table_width
        for inner, full in lines:
            self._found.place = (inner.number, full.op)
            if full.num_full_blocks > width:
                raise self._found.refuse(
                    f"{full.num_full_blocks} full blocks, where a request has at most {width}"
                )
        keys = [np.zeros(max(high - low, 0), np.uint64) for _ in range(self._num_groups)]
        for inner, full in lines:
            self._found.place = (inner.number, full.op)
            self._same_group(full)
            self._found.same("num_cached_blocks", full.num_cached_blocks, low)
            self._found.same("num_full_blocks", full.num_full_blocks, high)
            self._same_full_blocks(full, row, request)
            for at, key in zip(full.index, full.hashes, strict=False):
                if low <= at < high:
                    keys[full.group][at - low] = int(key, 16)
        self._found.place = (call.number, line.op)
        self._same_groups(lines)
        state.sent["BlockStored"] += len(lines)
        self._pool.tell(Protected(row, high * state.block_size, tuple(keys), NO_LINKS))
        for inner, full in lines:
            self._found.place = (inner.number, full.op)
            self._pool.same_counts(full.blocks, full.refs)
            self._pool.same_hashes(full.blocks, full.hashes)
            state.same_free(full)
            state.unwritten |= dict.fromkeys(full.blocks, line.req)

    def _same_groups(self, lines: list[tuple[Call, ops.CacheFullBlocks]]) -> None:
        groups = [full.group for _call, full in lines]
        self._found.same("groups with full blocks", groups, list(range(self._num_groups)))

    def _same_full_blocks(self, line: ops.CacheFullBlocks, row: int, request: Request) -> None:
        same, low = self._found.same, line.num_cached_blocks
        same("block_size", line.block_size, self._import.block_size)
        same("num_tokens", line.num_tokens, request.num_tokens)
        table = self._import.ledger.pages_of(row, line.group).tolist()[: line.num_full_blocks]
        masked = line.masked or [0] * max(line.num_full_blocks - low, 0)
        open_at = [
            low + i
            for i, (block, left_out) in enumerate(zip(table[low:], masked, strict=False))
            if block != NULL_BLOCK and not left_out
        ]
        same("length of masked", len(masked), line.num_full_blocks - low)
        same("index", line.index, open_at)
        same("blocks", line.blocks, [table[at] for at in open_at])
        if self._import.recompute:
            own = request.tokens.hashes
            same("hashes", line.hashes, [own[at] for at in open_at if at < len(own)])
