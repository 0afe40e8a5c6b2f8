"""How requests leave: finished, saved as a session's turn, aborted, retracted."""

from __future__ import annotations

import numpy as np

from kvlife.simulation.loop_state import LoopState
from kvlife.simulation.request import Fate, Place, Request
from kvlife.simulation.token_source import Tokens


class Endings:
    """Takes requests out of the run, whatever they are doing."""

    def __init__(self, loop: LoopState) -> None:
        self._loop = loop

    def complete(self, request: Request) -> None:
        """A request has generated all its tokens, or as many as its fate leaves it."""
        loop = self._loop
        if request.fate is Fate.FLIGHT:
            loop.decoding.push_back(request)
            loop.aborts.due_in_step.append(request)
        elif request.fate in (Fate.DECODE, Fate.RETRACTED):
            self.abort(request)
        else:
            loop.decoding.leave([request])
            if request.session is None or request.closed:
                self._finish(request)
            else:
                self._save(request)
            loop.tally.completed += 1
            self._gone(request)

    def abort(self, request: Request) -> None:
        """End a request wherever it is; one that is gone already stays gone."""
        loop, place = self._loop, request.place
        if place is Place.GONE:
            return
        self._take_out(request)
        with loop.watch:
            loop.engine.abort(request.rid)
        loop.tally.aborts[_stage_of(request, place)] += 1
        self._gone(request)

    def retract(self, request: Request) -> None:
        """Take a running request's KV away and put it back into the queue.

        Where the host has room for what only it has, that is kept there. Else what it has computed
        is published first, so that it finds it again unless it is evicted.
        """
        loop = self._loop
        self._take_out(request)
        with loop.watch:
            fits = 0 < loop.engine.host_pages_required(request.rid) <= loop.engine.num_free_host()
        if fits:
            with loop.watch:
                loop.engine.retract_with_backup(request.rid)
            loop.tally.backups += 1
        else:
            self.publish(request, self._known_tokens(request))
            with loop.watch:
                loop.engine.retract(request.rid)
        request.retracted = True
        request.later_turn = False
        request.target_len = request.prompt_len + request.generated
        request.done_len = 0
        request.tokens = None
        loop.headroom = loop.config.headroom_tokens
        loop.tally.retractions += 1
        loop.queue.rejoin(request)
        loop.blocked = False
        if request.fate is Fate.RETRACTED:
            loop.aborts.due_now.append(request)

    def publish(self, request: Request, tokens: Tokens) -> None:
        """Publish what is confirmed; a later turn's row publishes nothing."""
        loop = self._loop
        if request.later_turn:
            return
        with loop.watch:
            loop.engine.protect(request.rid, tokens)
        self._after_publishing()

    def close_session(self, session: str) -> None:
        """Close an idle session."""
        loop = self._loop
        del loop.sessions.idle[session]
        with loop.watch:
            loop.engine.session_close(session)
        loop.tally.sessions_closed += 1
        loop.blocked = False

    def close_for_room(self) -> None:
        """Close the session that has been idle for longest; there is one."""
        self._loop.tally.sessions_closed_for_room += 1
        self.close_session(next(iter(self._loop.sessions.idle)))

    def close_in_turn(self, request: Request) -> None:
        """The client closes the session while a turn runs: the row goes with the request."""
        loop = self._loop
        if request.closed or request.place not in (Place.PREFILL, Place.DECODE):
            return
        request.closed = True
        if request.later_turn:
            assert request.session is not None  # a later turn runs on a session's row
            with loop.watch:
                loop.engine.session_close(request.session)
            loop.tally.sessions_closed += 1

    def _known_tokens(self, request: Request) -> Tokens:
        """The tokens that are there: what was to be prefilled, and what was generated since."""
        assert request.tokens is not None  # made when it was admitted
        start = request.target_len - request.prompt_len
        if request.generated <= start:
            return request.tokens
        output = self._loop.workload.output(request.idx)
        return np.concatenate((request.tokens, output[start : request.generated]))

    def _finish(self, request: Request) -> None:
        loop, tokens = self._loop, self._known_tokens(request)
        with loop.watch:
            loop.engine.finish(request.rid, tokens)
        self._after_publishing()

    def _save(self, request: Request) -> None:
        loop = self._loop
        assert request.session is not None  # the caller looked
        with loop.watch:
            kept_len = loop.engine.record(request.rid).kv_committed_len
            loop.engine.session_save(request.session, request.rid, kept_len)
        if not request.later_turn:
            loop.tally.sessions += 1
        loop.sessions.rest(request, kept_len, loop.clock.now_ns)

    def _after_publishing(self) -> None:
        # A page that was rebound may stay in quarantine until a step in flight has settled.
        if self._loop.config.dispatches:
            self._loop.room.forget()

    def _take_out(self, request: Request) -> None:
        if request.place is Place.PREFILL:
            self._loop.prefills.remove(request)
        elif request.place is Place.DECODE:
            self._loop.decoding.leave([request])

    def _gone(self, request: Request) -> None:
        loop = self._loop
        request.place = Place.GONE
        request.tokens = None
        loop.tally.output_tokens += request.generated
        loop.blocked = False
        following = loop.sessions.end_turn(request)
        if following is not None:
            loop.queue.join(following)


def _stage_of(request: Request, place: Place) -> str:
    """In which state an abort met a request, for the summary."""
    if place is Place.WAITING and request.retracted:
        return "retracted"
    if place is Place.WAITING and request.session is not None:
        return "before turn"
    if place is Place.DECODE and request.fate is Fate.FLIGHT:
        return "in step"
    return place.name.lower()
