"""Speculative decoding: how many guessed tokens turn out to be right."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class DraftLuck:
    """Seeded draws: of `draft` tokens a row, those before the first wrong one are accepted."""

    def __init__(self, draft: int, acceptance: float, generator: np.random.Generator) -> None:
        self._draft = draft
        self._acceptance = acceptance
        self._generator = generator

    def draw(self, num_rows: int) -> npt.NDArray[np.int32]:
        """Accepted tokens of each of `num_rows` rows, int32 in [0, draft]."""
        right = self._generator.random((num_rows, self._draft)) < self._acceptance
        accepted: npt.NDArray[np.int32] = np.logical_and.accumulate(right, axis=1).sum(
            axis=1, dtype=np.int32
        )
        return accepted
