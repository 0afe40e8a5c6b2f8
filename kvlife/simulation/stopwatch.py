"""Time spent in commands of the engine, measured around them."""

from __future__ import annotations

from time import perf_counter_ns
from types import TracebackType


class Stopwatch:
    """Sums up the wall time of its `with` blocks, in ns; it is shown, and decides nothing."""

    __slots__ = ("_begun", "ns")

    def __init__(self) -> None:
        self.ns = 0
        self._begun = 0

    def __enter__(self) -> None:
        self._begun = perf_counter_ns()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.ns += perf_counter_ns() - self._begun
