"""Streaming sessions: whose turn it is, who waits for the turn before, and what is idle."""

from __future__ import annotations

import heapq
from collections import deque

import attrs
import numpy as np

from kvlife.simulation.request import Place, Request
from kvlife.simulation.scheduler_config import SchedulerConfig
from kvlife.simulation.virtual_time import NEVER_NS
from kvlife.simulation.workload import Turns


@attrs.frozen
class IdleSession:
    """A session between two turns: the request of the last one, and the tokens its row holds."""

    idx: int
    kept_len: int


@attrs.frozen(order=True)
class Closing:
    """The client closes a session at a time, if request `idx` is still the last to have used it."""

    time_ns: int
    number: int
    session: str
    idx: int


class SessionBook:
    """All sessions of a run, by id; `idle` begins with the one that has been idle for longest.

    `next_closing_ns` is when the next session may be closed.
    """

    def __init__(
        self, turns: Turns, config: SchedulerConfig, generator: np.random.Generator
    ) -> None:
        self.idle: dict[str, IdleSession] = {}
        self._config = config
        self._generator = generator
        self._conversation_idx = turns.conversation_idx
        num_conversations = int(turns.conversation_idx.max()) + 1
        self._chosen = generator.random(num_conversations) < config.session_rate
        self._turns: dict[str, Request] = {}
        self._parked: dict[str, deque[Request]] = {}
        self._closings: list[Closing] = []
        self.next_closing_ns = NEVER_NS
        self._num_closings = 0

    def session_of(self, idx: int) -> str | None:
        """The session that request `idx` is a turn of, or None."""
        conversation = int(self._conversation_idx[idx])
        return f"s{conversation}" if self._chosen[conversation] else None

    def may_begin(self, request: Request) -> bool:
        """Whether a turn may join the queue; where the one before still runs it is parked."""
        session = request.session
        if session is None:
            return True
        if session in self._turns:
            request.place = Place.PARKED
            self._parked.setdefault(session, deque()).append(request)
            return False
        self._turns[session] = request
        return True

    def end_turn(self, request: Request) -> Request | None:
        """The turn is over; the next one where it is parked already, which may join the queue."""
        session = request.session
        if session is None or self._turns.get(session) is not request:
            return None
        del self._turns[session]
        parked = self._parked.get(session)
        while parked:
            following = parked.popleft()
            if following.place is Place.PARKED:
                self._turns[session] = following
                return following
        return None

    def rest(self, request: Request, kept_len: int, now_ns: int) -> None:
        """A turn was saved: its session is idle, until its next turn or until the client leaves."""
        assert request.session is not None  # only a turn of a session is saved
        self.idle[request.session] = IdleSession(request.idx, kept_len)
        mean_ns = self._config.session_idle_ns
        self._close_later(request, now_ns + int(self._generator.exponential(mean_ns)))

    def resume(self, request: Request, now_ns: int) -> None:
        """A turn begins on the session's row, and its client may leave in the middle of it."""
        assert request.session is not None  # only a turn of a session begins
        self.idle.pop(request.session, None)
        if self._generator.random() < self._config.close_rate:
            self._close_later(request, now_ns + int(self._generator.exponential(1e9)))

    def rewind(self, shared_len: int) -> int | None:
        """How many of the tokens it could keep a turn keeps where it goes back further, or None."""
        if self._generator.random() >= self._config.rewind_rate:
            return None
        return int(self._generator.random() * shared_len)

    def _close_later(self, request: Request, time_ns: int) -> None:
        assert request.session is not None  # the callers looked
        self._num_closings += 1
        closing = Closing(time_ns, self._num_closings, request.session, request.idx)
        heapq.heappush(self._closings, closing)
        self.next_closing_ns = self._closings[0].time_ns

    def due_idle(self, now_ns: int) -> tuple[list[str], list[Request]]:
        """Sessions to close now: ids of idle ones, and requests whose turn is running."""
        idle, running = [], []
        while self._closings and self._closings[0].time_ns <= now_ns:
            closing = heapq.heappop(self._closings)
            resting = self.idle.get(closing.session)
            turn = self._turns.get(closing.session)
            if resting is not None and resting.idx == closing.idx:
                idle.append(closing.session)
            elif turn is not None and turn.idx == closing.idx:
                running.append(turn)
        self.next_closing_ns = self._closings[0].time_ns if self._closings else NEVER_NS
        return idle, running
