"""Who is aborted, and when: drawn for all requests before the first one arrives."""

from __future__ import annotations

import numpy as np

from kvlife.simulation.request import Fate, Request

_FATES = tuple(Fate)


class AbortPlan:
    """The fate of each request, and lists of those whose time has come.

    `due_now` are aborted before the next admissions, `due_in_step` once the step is scheduled.
    """

    def __init__(self, num_requests: int, rate: float, generator: np.random.Generator) -> None:
        self.due_now: list[Request] = []
        self.due_in_step: list[Request] = []
        doomed = generator.random(num_requests) < rate
        fates = generator.integers(1, 1 + len(_FATES), num_requests)
        self._fates = np.where(doomed, fates, 0).astype(np.uint8)
        self._shares = generator.random(num_requests)

    def fate(self, idx: int) -> Fate | None:
        """When request `idx` is aborted, or None."""
        drawn = int(self._fates[idx])
        return _FATES[drawn - 1] if drawn else None

    def stop_at(self, idx: int, output_len: int) -> int:
        """After how many generated tokens request `idx` ends, in [1, output_len]."""
        if self.fate(idx) not in (Fate.DECODE, Fate.FLIGHT):
            return output_len
        return 1 + int(self._shares[idx] * (output_len - 1))

    def take_now(self) -> list[Request]:
        """Those whose time has come before an admission."""
        due, self.due_now = self.due_now, []
        return due

    def take_in_step(self) -> list[Request]:
        """Those whose time has come while a step is under way."""
        due, self.due_in_step = self.due_in_step, []
        return due
