"""Who waits: first come, first served; who was retracted goes back to the old place."""

from __future__ import annotations

import heapq

from kvlife.simulation.request import Place, Request


class WaitingQueue:
    """Requests in the order in which they first joined; an aborted one is passed over."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, Request]] = []
        self._num_joined = 0

    def join(self, request: Request) -> None:
        """A new request goes to the end."""
        self._num_joined += 1
        request.turn_order = self._num_joined
        self.rejoin(request)

    def rejoin(self, request: Request) -> None:
        """A retracted request goes in front of all that came after it."""
        request.place = Place.WAITING
        heapq.heappush(self._heap, (request.turn_order, request))

    def head(self) -> Request | None:
        """Whose turn it is, or None."""
        while self._heap and self._heap[0][1].place is not Place.WAITING:
            heapq.heappop(self._heap)
        return self._heap[0][1] if self._heap else None

    def pop(self) -> Request:
        """Take the head off."""
        return heapq.heappop(self._heap)[1]
