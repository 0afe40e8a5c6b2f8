"""One step: what is scheduled for it, and what its result means."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from kvlife.engine import Batch
from kvlife.simulation.endings import Endings
from kvlife.simulation.loop_state import Chunk, LoopState
from kvlife.simulation.pool_sizing import WINDOW_STEPS
from kvlife.simulation.request import Place, Request
from kvlife.simulation.virtual_time import step_ns


@attrs.frozen(eq=False)
class Step:
    """A scheduled step: the requests with a chunk in it, and how long it takes."""

    number: int
    prefilled: tuple[Request, ...]
    duration_ns: int


class Steps:
    """Launches steps and takes in their results, in this order and one after another."""

    def __init__(self, loop: LoopState, endings: Endings) -> None:
        self._loop = loop
        self._endings = endings
        self._num_launched = 0

    @property
    def next_number(self) -> int:
        """The number of the next step."""
        return self._num_launched

    def launch(self, chunks: Sequence[Chunk]) -> Step:
        """Allocate what a step writes, and dispatch it where steps are dispatched.

        Raises `OutOfPages` where it does not fit after all; it may be launched again then.
        """
        loop, engine, number = self._loop, self._loop.engine, self._num_launched
        batch = loop.decoding.batch(engine) if len(loop.decoding) else None
        num_prefilled = sum(chunk.num_tokens for chunk in chunks) if chunks else 0
        with loop.watch:
            if chunks:
                rids = [chunk.request.rid for chunk in chunks]
                engine.allocate(rids, [chunk.upto_len for chunk in chunks])
            if batch is not None:
                self._allocate_next(batch)
            if loop.config.dispatches:
                self._dispatch(number, batch, chunks)
        self._num_launched += 1
        loop.tally.steps += 1
        duration_ns = step_ns(num_prefilled, len(loop.decoding))
        if not chunks:
            return Step(number, (), duration_ns)
        for chunk in chunks:
            chunk.request.done_len = chunk.upto_len
        loop.tally.prefill_tokens += num_prefilled
        return Step(number, tuple(chunk.request for chunk in chunks), duration_ns)

    def graduate(self, step: Step) -> None:
        """Requests whose whole target is scheduled by this step decode from the next one on."""
        loop = self._loop
        if not step.prefilled:
            return
        ready = [
            request
            for request in step.prefilled
            if request.place is Place.PREFILL and request.done_len == request.target_len
        ]
        for request in ready:
            request.place = Place.DECODE
            loop.prefills.remove(request)
        if ready:
            loop.decoding.join(ready)

    def land(self, step: Step) -> None:
        """Take in a step's result: settle, commit, publish, and let go what has ended."""
        loop = self._loop
        if loop.config.dispatches:
            with loop.watch:
                loop.engine.settle(step.number)
            # What drained with this step may be room for the head of the queue.
            loop.blocked = False
        unfinished = [request for request in step.prefilled if request.place is Place.PREFILL]
        if unfinished:
            with loop.watch:
                loop.engine.commit([request.rid for request in unfinished])
        if len(loop.decoding):
            for request in self._take_tokens():
                self._endings.complete(request)
        for request in step.prefilled:
            if request.place is Place.DECODE:
                self._endings.publish(request, _target(request))
        if loop.windowed:
            self._move_windows(step, unfinished)

    def _allocate_next(self, batch: Batch) -> None:
        loop, decoding = self._loop, self._loop.decoding
        if not loop.config.draft:
            loop.engine.decode(batch)
            return
        wanted = decoding.kv_len + np.int32(loop.config.tokens_per_row)
        allocated_len = np.maximum(decoding.allocated_len, wanted)
        loop.engine.allocate(batch, allocated_len)
        decoding.allocated_len = allocated_len

    def _dispatch(self, number: int, batch: Batch | None, chunks: Sequence[Chunk]) -> None:
        rids = [chunk.request.rid for chunk in chunks]
        if batch is None:
            self._loop.engine.dispatch(number, rids)
        elif not rids:
            self._loop.engine.dispatch(number, batch)
        else:
            self._loop.engine.dispatch(number, [*batch.rids, *rids])

    def _take_tokens(self) -> list[Request]:
        """Confirm what the result holds for each row; those that have all their tokens."""
        loop, decoding = self._loop, self._loop.decoding
        batch = decoding.batch(loop.engine)
        if not loop.config.draft:
            with loop.watch:
                loop.engine.commit(batch)
            return decoding.take_one()
        num_fresh = int(np.count_nonzero(decoding.fresh))
        before = int(decoding.left.sum())
        done = decoding.take(loop.luck.draw(len(decoding)))
        loop.tally.drafted_tokens += loop.config.draft * (len(decoding) - num_fresh)
        loop.tally.accepted_tokens += before - int(decoding.left.sum()) - len(decoding)
        with loop.watch:
            loop.engine.commit(batch, decoding.kv_len)
            if not loop.config.overlap:
                # Under overlap the next step has been scheduled behind the reserve, so it stays.
                loop.engine.roll_back(batch, decoding.kv_len)
                decoding.allocated_len = decoding.kv_len
        return done

    def _move_windows(self, step: Step, unfinished: Sequence[Request]) -> None:
        """Prompts move their windows with each published chunk, the others now and then."""
        loop = self._loop
        for request in unfinished:
            if request.place is Place.PREFILL:
                self._endings.publish(request, _target(request))
        moving = [request.rid for request in unfinished]
        which: Batch | list[str] | None = moving or None
        if step.number % WINDOW_STEPS == 0 and len(loop.decoding):
            batch = loop.decoding.batch(loop.engine)
            which = [*batch.rids, *moving] if moving else batch
        if which is not None:
            with loop.watch:
                if loop.engine.evict_window(which):
                    loop.blocked = False


def _target(request: Request) -> np.typing.NDArray[np.int32]:
    assert request.tokens is not None  # made when it was admitted
    return request.tokens
