"""What gives way where the next step does not fit."""

from __future__ import annotations

from collections.abc import Callable

from kvlife.simulation.endings import Endings
from kvlife.simulation.loop_state import Chunk, LoopState
from kvlife.simulation.request import Place, Request


class Relief:
    """Makes room for a step, from what costs least: windows, idle sessions, the youngest request.

    `land` settles the step in flight, if there is one, and says whether there was: what has ended
    with it gives its pages back, and a request that is retracted then is not in flight.
    """

    def __init__(self, loop: LoopState, endings: Endings, land: Callable[[], bool]) -> None:
        self._loop = loop
        self._endings = endings
        self._land = land
        self._pages_per_row = max(loop.pages_of(loop.config.tokens_per_row))

    def make_room(self, chunks: list[Chunk]) -> None:
        """Let the next step fit; takes out of `chunks` those whose requests went."""
        if self._fits(chunks):
            return
        self._move_windows()
        while not self._fits(chunks):
            if not self.give_way(chunks):
                return

    def _fits(self, chunks: list[Chunk]) -> bool:
        loop = self._loop
        num_rows = len(loop.decoding)
        if not chunks and loop.room.take_free(num_rows * self._pages_per_row):
            return True
        per_row = loop.config.tokens_per_row
        for_chunks = loop.chunk_pages(chunks)
        most = [
            num + num_rows * pages
            for num, pages in zip(for_chunks, loop.pages_of(per_row), strict=True)
        ]
        if loop.room.holds(most):
            self._take(most)
            return True
        if not num_rows:
            return False
        need = loop.engine.pages_required(loop.decoding.batch(loop.engine), per_row)
        exact = [num + more for num, more in zip(for_chunks, need, strict=True)]
        if not loop.room.holds(exact):
            return False
        self._take(exact)
        return True

    def _take(self, need: list[int]) -> None:
        loop = self._loop
        with loop.watch:
            loop.room.take(need)

    def _move_windows(self) -> None:
        loop = self._loop
        running = [*loop.decoding.members, *loop.prefills]
        if loop.windowed and running:
            with loop.watch:
                loop.engine.evict_window([request.rid for request in running])

    def give_way(self, chunks: list[Chunk]) -> bool:
        """Take one thing away; False where all that is left is one request."""
        if not self._take_one_away():
            return False
        chunks[:] = [chunk for chunk in chunks if chunk.request.place is Place.PREFILL]
        return True

    def _take_one_away(self) -> bool:
        loop = self._loop
        if loop.sessions.idle:
            self._endings.close_for_room()
            return True
        if self._land():
            return True
        if loop.num_running <= 1:
            return False
        self._endings.retract(self._youngest())
        return True

    def _youngest(self) -> Request:
        """The running request that joined the queue last."""
        loop = self._loop
        running = [*loop.prefills, *loop.decoding.members]
        return max(running, key=lambda request: request.turn_order)
