"""Who held a row, from when to when: the longest, and how long requests stay on their rows."""

from __future__ import annotations

import heapq

import attrs
import numpy as np

from kvlife.invariants.effect import holder_of
from kvlife.ledger import Ledger
from kvlife.replay.report_page.histogram import Histogram

MAX_LISTED = 15
MAX_NAME = 80
_CHUNK = 4096


@attrs.frozen(kw_only=True)
class Tenure:
    """A holder's time on a row, on the axis; `since` is the seq of the event that began it.

    `since` is None where the log begins later, and `ended` is None where it was held at the end.
    `peak_pages` is the most that was seen where a column of the report ends, or let go at once.
    """

    holder: str
    row: int
    since: int | None
    start: int
    stop: int
    ended: str | None
    peak_pages: int

    @property
    def duration(self) -> int:
        """How long, in the unit of the axis."""
        return max(self.stop - self.start, 0)


@attrs.define
class _Open:
    holder: str
    since: int | None
    start: int
    of_request: bool


def shortened(name: str) -> str:
    """A name that fits into a table."""
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


class Tenures:
    """Follows who holds each row; total on faulty events."""

    def __init__(self, num_rows: int) -> None:
        self.stays = Histogram()
        self.num = 0
        self._open: dict[int, _Open] = {}
        self._peaks = np.zeros(num_rows, np.int64)
        self._stays: list[int] = []
        self._longest: list[tuple[int, int, Tenure]] = []

    def adopt(self, ledger: Ledger, start: int) -> None:
        """Begin with a state that has holders already."""
        for row in ledger.rows.in_use().tolist():
            name = shortened(holder_of(ledger, row))
            self._open[row] = _Open(name, None, start, ledger.rows.rid[row] is not None)

    def begin(self, row: int, holder: str, seq: int, place: int, *, of_request: bool) -> None:
        """A holder gets a row; one that the log never ended is ended here."""
        self.end(row, "another holder", place)
        self._open[row] = _Open(shortened(holder), seq, place, of_request)
        self._peaks[row] = 0

    def end(self, row: int, how: str, place: int, num_pages: int = 0) -> None:
        """The holder of a row, if it has one, lets go."""
        opened = self._open.pop(row, None)
        if opened is not None:
            tenure = self._closed(row, opened, place, how, num_pages)
            if opened.of_request and opened.since is not None:
                self._stays.append(tenure.duration)
                if len(self._stays) >= _CHUNK:
                    self._count_stays()

    def see(
        self,
        index: np.ndarray[tuple[int], np.dtype[np.intp]],
        num_pages: np.ndarray[tuple[int], np.dtype[np.int64]],
    ) -> None:
        """These rows hold so many pages now."""
        self._peaks[index] = np.maximum(self._peaks[index], num_pages)

    def finish(self, place: int) -> None:
        """The log ends here."""
        for row, opened in self._open.items():
            self._closed(row, opened, place, None, 0)
        self._open = {}
        self._count_stays()

    def _count_stays(self) -> None:
        self.stays.add(np.array(self._stays, np.int64))
        self._stays = []

    @property
    def longest(self) -> list[Tenure]:
        """The longest ones, the longest first."""
        return [tenure for _, _, tenure in sorted(self._longest, key=lambda item: -item[0])]

    def _closed(
        self, row: int, opened: _Open, place: int, how: str | None, num_pages: int
    ) -> Tenure:
        tenure = Tenure(
            holder=opened.holder,
            row=row,
            since=opened.since,
            start=opened.start,
            stop=place,
            ended=how,
            peak_pages=max(int(self._peaks[row]), num_pages),
        )
        self.num += 1
        entry = (tenure.duration, -self.num, tenure)
        if len(self._longest) < MAX_LISTED:
            heapq.heappush(self._longest, entry)
        else:
            heapq.heappushpop(self._longest, entry)
        return tenure
