"""Who begins: chunks of prompts already begun, then the head of the queue where it fits."""

from __future__ import annotations

import numpy as np

from kvlife.errors import OutOfPages, OutOfRows
from kvlife.simulation.endings import Endings
from kvlife.simulation.loop_state import Chunk, LoopState
from kvlife.simulation.request import Fate, Place, Request
from kvlife.simulation.session_book import IdleSession
from kvlife.simulation.token_source import Tokens


class Admission:
    """First come, first served, against free and evictable pages."""

    def __init__(self, loop: LoopState, endings: Endings) -> None:
        self._loop = loop
        self._endings = endings

    def plan_chunks(self) -> list[Chunk]:
        """The prompt tokens of the next step; admits where there is room and budget left."""
        loop, chunks = self._loop, list[Chunk]()
        if not loop.prefills and (loop.blocked or loop.queue.head() is None):
            return chunks
        budget = loop.config.chunk_tokens
        for running in loop.prefills:
            if budget:
                chunks.append(_chunk_of(running, budget))
                budget -= chunks[-1].num_tokens
        while budget and not loop.blocked and loop.num_running < loop.config.max_running:
            request = loop.queue.head()
            if request is None:
                break
            if not self._has_room(request) or not self._start(request):
                loop.blocked = True
                break
            loop.queue.pop()
            request.place = Place.PREFILL
            loop.prefills.append(request)
            if request.fate is Fate.PREFILL:
                loop.aborts.due_in_step.append(request)
            chunks.append(_chunk_of(request, budget))
            budget -= chunks[-1].num_tokens
        return chunks

    def _has_room(self, request: Request) -> bool:
        loop = self._loop
        if not loop.num_running:
            # Alone it may take all there is; what idle sessions hold, it may take from them.
            while loop.sessions.idle and not loop.room.holds(self._own_need(request)):
                self._endings.close_for_room()
            return True
        own = self._own_need(request)
        need = self._shared_need(own)
        if loop.room.holds(need):
            return True
        # What others have locked of its prompt already, it takes from nobody.
        base = loop.engine.ledger.layout.base
        least = list(need)
        least[base] -= own[base]
        if not loop.room.holds(least):
            return False
        least[base] += own[base] - self._num_locked(request)
        return loop.room.holds(least)

    def _own_need(self, request: Request) -> list[int]:
        """Pages per group of a request's whole target; a window group keeps its window."""
        loop = self._loop
        resting = loop.sessions.idle.get(request.session or "")
        kept = 0 if resting is None else min(resting.kept_len, request.target_len)
        need = []
        for group in loop.engine.ledger.layout.groups:
            num_tokens = request.target_len - kept // group.page_size * group.page_size
            if group.window is not None:
                num_tokens = min(num_tokens, group.window + 2 * loop.config.chunk_tokens)
            need.append(-(-num_tokens // group.page_size))
        return need

    def _shared_need(self, own: list[int]) -> list[int]:
        """What a request needs beside what running prompts still need, and headroom for all."""
        loop = self._loop
        pending = [Chunk(request, request.target_len) for request in loop.prefills]
        headroom = loop.pages_of(round(loop.headroom))
        return [
            num + outstanding + spare * (loop.num_running + 1)
            for num, outstanding, spare in zip(
                own, loop.chunk_pages(pending), headroom, strict=True
            )
        ]

    def _num_locked(self, request: Request) -> int:
        """Pages of the base group that the request's prompt hits and that others hold."""
        loop = self._loop
        with loop.watch:
            hit = loop.engine.match(self._tokens(request))
        ledger = loop.engine.ledger
        base = ledger.layout.groups[ledger.layout.base]
        refs = ledger.spaces[base.space_idx].refs
        return int(np.count_nonzero(refs[hit.pages[base.idx]]))

    def _tokens(self, request: Request) -> Tokens:
        """What is to be prefilled, made when it is first needed."""
        if request.tokens is None:
            workload, idx = self._loop.workload, request.idx
            request.tokens = workload.prompt(idx)
            if request.generated:
                output = workload.output(idx)[: request.generated]
                request.tokens = np.concatenate((request.tokens, output))
        return request.tokens

    def _start(self, request: Request) -> bool:
        """Bind the request to a row; idle sessions give way where rows are short.

        So they do where the pages are that a backup is restored to.
        """
        loop = self._loop
        resting = loop.sessions.idle.get(request.session or "")
        if resting is not None:
            self._restore(request, resting)
            return True
        while True:
            try:
                self._admit(request)
            except (OutOfRows, OutOfPages):
                if not loop.sessions.idle:
                    return False
                self._endings.close_for_room()
            else:
                return True

    def _admit(self, request: Request) -> None:
        loop, tokens = self._loop, self._tokens(request)
        bind = loop.engine.resume if request.retracted else loop.engine.admit
        with loop.watch:
            got = bind(request.rid, tokens)
        request.done_len = got.restored_len
        loop.room.spend(loop.pages_of(got.restored_len))
        if request.retracted:
            loop.tally.resumed_hit_tokens += got.matched_len
            loop.tally.restored_tokens += got.restored_len - got.prefix_len
        else:
            loop.tally.prompt_tokens += request.prompt_len
            loop.tally.hit_tokens += got.matched_len

    def _restore(self, request: Request, resting: IdleSession) -> None:
        """Begin a turn on its session's row; what the row holds beyond the common part goes."""
        loop, tokens = self._loop, self._tokens(request)
        assert request.session is not None  # it has an idle session
        held = loop.workload.tokens(resting.idx)[: resting.kept_len]
        wanted = shared_len(held, tokens[:-1])
        rewound = loop.sessions.rewind(wanted)
        if rewound is not None:
            wanted = rewound
            loop.tally.rewinds += 1
        with loop.watch:
            turn = loop.engine.session_restore(
                request.session, request.rid, wanted, prompt_len=request.prompt_len
            )
        request.done_len = turn.kept_len
        request.later_turn = True
        loop.sessions.resume(request, loop.clock.now_ns)
        loop.tally.session_turns += 1
        loop.tally.session_tokens += turn.kept_len
        loop.tally.prompt_tokens += request.prompt_len


def shared_len(left: Tokens, right: Tokens) -> int:
    """How many tokens two arrays have in common from the start."""
    num = min(len(left), len(right))
    differing = np.flatnonzero(left[:num] != right[:num])
    return int(differing[0]) if differing.size else num


def _chunk_of(request: Request, budget: int) -> Chunk:
    return Chunk(request, min(request.target_len, request.done_len + budget))
