"""The counters of a timeline: pages by state, rows, tokens, steps and pins."""

from __future__ import annotations

import numpy as np

from kvlife.ledger import Ledger, PageState, RowState
from kvlife.replay.exporting.tracks import Sink, Track, Tracks

# Samples of each counter that a timeline has at most; more would show nothing more.
MAX_SAMPLES = 20_000
_STATES = (PageState.FREE, PageState.PRIVATE, PageState.CACHED, PageState.QUARANTINED)


class Gauges:
    """Reads a state now and then, and writes the numbers that changed since."""

    def __init__(self, tracks: Tracks, sink: Sink, pools: Track, num_events: int) -> None:
        self._tracks = tracks
        self._sink = sink
        self._pools = pools
        self._engine = tracks.group("engine")
        self._every = -(-num_events // MAX_SAMPLES) or 1
        self._left = 0
        self._last: dict[str, int] = {}

    def step(self, ledger: Ledger, at: int) -> None:
        """An event was applied."""
        self._left -= 1
        if self._left <= 0:
            self.read(ledger, at)

    def read(self, ledger: Ledger, at: int) -> None:
        """Write what a state has otherwise than the last one that was read."""
        self._left = self._every
        for space, layout in zip(ledger.spaces, ledger.layout.spaces, strict=True):
            counts = np.bincount(space.state, minlength=len(PageState)).tolist()
            for state in _STATES:
                name = f"{layout.name}: {state.name} pages"
                self._write(self._pools, name, counts[state], at)
        if ledger.host is not None:
            counts = np.bincount(ledger.host.state, minlength=len(PageState)).tolist()
            for state in (PageState.FREE, PageState.PRIVATE):
                self._write(self._pools, f"the host: {state.name} pages", counts[state], at)
        rows = ledger.rows
        live = rows.in_use()
        held = int(np.count_nonzero(rows.state[live] == RowState.HELD))
        for name, value in (
            ("rows held", held),
            ("rows draining", live.size - held),
            ("tokens allocated", int(rows.allocated[live].sum())),
            ("tokens committed", int(rows.committed[live].sum())),
            ("requests waiting", len(ledger.waiting)),
            ("sessions", len(ledger.sessions)),
            ("steps in flight", len(ledger.steps)),
            ("pins", len(ledger.pins)),
        ):
            self._write(self._engine, name, value, at)

    def _write(self, group: Track, name: str, value: int, at: int) -> None:
        if self._last.get(name) != value:
            self._last[name] = value
            self._sink.count(self._tracks.counter(group, name), at, value)
