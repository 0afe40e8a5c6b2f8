"""A histogram of durations on a logarithmic scale, filled a chunk at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]

BINS_PER_DECADE = 5
# Up to 10^18 ns are thirty years.
_NUM_BINS = 18 * BINS_PER_DECADE
_EDGES = np.round(10.0 ** (np.arange(1, _NUM_BINS) / BINS_PER_DECADE)).astype(np.int64)


class Histogram:
    """Counts of whole numbers: bin k holds [10^(k/5), 10^((k+1)/5)), `zero` what is below 1."""

    def __init__(self) -> None:
        self.counts: I64 = np.zeros(_NUM_BINS, np.int64)
        self.zero = 0
        self.total = 0
        self.longest = 0

    def add(self, durations: I64) -> None:
        """Count some durations in."""
        if not durations.size:
            return
        some = durations[durations > 0]
        bins = np.searchsorted(_EDGES, some, side="right")
        self.zero += durations.size - some.size
        self.counts += np.bincount(bins, minlength=_NUM_BINS)
        self.total += durations.size
        self.longest = max(self.longest, int(durations.max()))

    def quantile(self, share: float) -> float:
        """Below which this share lies, as exactly as the bins tell; 0 of nothing."""
        if not self.total:
            return 0.0
        wanted = share * self.total - self.zero
        if wanted <= 0:
            return 0.0
        upto = np.cumsum(self.counts)
        place = int(np.searchsorted(upto, wanted))
        before = int(upto[place - 1]) if place else 0
        within = (wanted - before) / int(self.counts[place])
        return min(float(10.0 ** ((place + within) / BINS_PER_DECADE)), float(self.longest))

    def as_json(self) -> dict[str, Any]:  # Any: JSON
        """The bins from the first that is not empty to the last, and what they add up to."""
        filled = np.flatnonzero(self.counts)
        first, last = (int(filled[0]), int(filled[-1]) + 1) if filled.size else (0, 0)
        return {
            "first": first,
            "counts": self.counts[first:last].tolist(),
            "per_decade": BINS_PER_DECADE,
            "zero": self.zero,
            "total": self.total,
            "median": self.quantile(0.5),
            "p99": self.quantile(0.99),
            "longest": self.longest,
        }
