"""A log as tables in Parquet files: events, requests, and the lives of pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kvlife.config import Layout
from kvlife.events import Recorded
from kvlife.ledger import Change, Ledger
from kvlife.replay.exporting.columns import LIFE_COLUMNS, REQUEST_COLUMNS
from kvlife.replay.exporting.events_table import EventRows, events_columns
from kvlife.replay.exporting.lives_table import LifeRows
from kvlife.replay.exporting.parquet_table import ParquetTable
from kvlife.replay.exporting.requests_table import RequestRows
from kvlife.replay.history.timeline import Moment

EVENTS, REQUESTS, LIVES = "events.parquet", "requests.parquet", "page_lives.parquet"


class Tables:
    """Writes the three tables into a folder as a log is followed."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self._events = ParquetTable(folder / EVENTS, events_columns(layout))
        self._requests = ParquetTable(folder / REQUESTS, REQUEST_COLUMNS)
        self._lives = ParquetTable(folder / LIVES, LIFE_COLUMNS)
        self._event_rows = EventRows(layout)
        self._request_rows = RequestRows(self._requests.add)
        self._life_rows: LifeRows | None = None
        self._ledger: Ledger | None = None

    @property
    def num_rows(self) -> dict[str, int]:
        """How many rows each file has so far."""
        return {
            EVENTS: self._events.num_rows,
            REQUESTS: self._requests.num_rows,
            LIVES: self._lives.num_rows,
        }

    def begin(self, ledger: Ledger, _seq: int, _time_ns: int) -> None:
        """Go on from a state."""
        if self._life_rows is None:
            self._life_rows = LifeRows(ledger, self._lives)
        self._life_rows.begin(ledger)
        self._request_rows.begin(ledger)
        self._ledger = ledger

    def before(self, ledger: Ledger, item: Recorded, change: Change) -> None:
        """See an event ahead of its application."""
        assert self._life_rows is not None
        self._life_rows.before(ledger, item, change)
        self._request_rows.before(ledger, item)

    def after(self, moment: Moment) -> None:
        """See the same event, applied."""
        assert self._life_rows is not None
        self.refused(moment.item)
        self._life_rows.after(moment)
        self._request_rows.after(moment)
        self._ledger = moment.ledger

    def refused(self, item: Recorded) -> None:
        """The event by itself."""
        row = self._event_rows.row(item)
        listed = sum(value.size for value in row.values() if isinstance(value, np.ndarray))
        self._events.add(row, listed)

    def finish(self) -> None:
        """The log ends: what goes on is written as open."""
        if self._life_rows is not None and self._ledger is not None:
            self._life_rows.finish()
            self._request_rows.finish(self._ledger)
        for table in (self._events, self._requests, self._lives):
            table.close()
