"""Watching one request while a log is folded: its events, and its lengths and pages after each."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import numpy as np

from kvlife.events import (
    Allocated,
    Committed,
    Recorded,
    RolledBack,
    StepDispatched,
    WindowEvicted,
)
from kvlife.ledger import Change, Ledger
from kvlife.replay.history.selecting import BINDS, RequestRows
from kvlife.replay.lives.request_words import event_text, steps_text

_STEPPING = (Allocated, Committed, RolledBack, StepDispatched, WindowEvicted)
# A run of decode steps.
STEPS = "steps"


@attrs.frozen
class Ladder:
    """A request's lengths, in tokens, and how many pages it references in each cache group."""

    protected: int
    committed: int
    allocated: int
    pages: tuple[int, ...]

    @property
    def num_pages(self) -> int:
        """The pages of all groups."""
        return sum(self.pages)


@attrs.frozen(kw_only=True)
class Entry:
    """One event of a request's life, or a run of decode steps that says the same of each.

    `event` is the event's kind, or `STEPS`; `kinds` counts what a run holds. `ladder` is that
    behind it, None where the request holds no row then.
    """

    first: Recorded
    last: Recorded
    event: str
    text: str
    ladder: Ladder | None
    kinds: dict[str, int]


@attrs.define
class _Run:
    """Decode steps that are not told one by one."""

    first: Recorded
    last: Recorded
    before: Ladder
    kinds: Counter[str]


class RequestWatch:
    """Collects the entries of a request; `whole` tells each decode step by itself."""

    def __init__(self, rid: str, *, whole: bool) -> None:
        self.follower = RequestRows(rid)
        self.entries: list[Entry] = []
        self._whole = whole
        self._run: _Run | None = None
        self._prompt_len = 0
        self._decodes = False
        self._concerned = False
        self._folded = False
        self._rows: object = None
        self._place = 0

    def begin(self, ledger: Ledger) -> None:
        """Go on from a state, which need not be that behind the last event."""
        if self._run is not None:
            self._tell(
                self._run, f"{steps_text(self._run.kinds)}, and then events are missing", None
            )
        self.follower.start_from(ledger)
        if self.follower.row is not None:
            self._bound(ledger, self.follower.row)

    def before(self, ledger: Ledger, item: Recorded) -> None:
        """See an event ahead of its application."""
        row = self.follower.row
        self._concerned = self.follower.concerns(item.event)
        if not self._concerned:
            return
        self._folded = row is not None and self._folds(item.event, row)
        if not self._folded:
            self.end_run(ledger, row)
        elif self._run is None and row is not None:
            self._run = _Run(item, item, ladder_of_row(ledger, row), Counter())

    def after(self, ledger: Ledger, item: Recorded, _change: Change) -> None:
        """See the same event, applied."""
        if not self._concerned:
            return
        if self._folded and self._run is not None:
            self._run.last = item
            self._run.kinds[type(item.event).__name__] += 1
            return
        row = self.follower.row
        if row is not None and isinstance(item.event, BINDS):
            self._bound(ledger, row)
        self.entries.append(
            Entry(
                first=item,
                last=item,
                event=type(item.event).__name__,
                text=event_text(item.event, self._place_of(item.event)),
                ladder=None if row is None else ladder_of_row(ledger, row),
                kinds={type(item.event).__name__: 1},
            )
        )

    def end_run(self, ledger: Ledger, row: int | None) -> None:
        """Tell the decode steps so far as one entry; `row` is the request's, in this state."""
        run = self._run
        if run is None or row is None:
            return
        ladder = ladder_of_row(ledger, row)
        self._tell(
            run,
            f"{steps_text(run.kinds)}, allocated {run.before.allocated:,} -> {ladder.allocated:,},"
            f" committed {run.before.committed:,} -> {ladder.committed:,}",
            ladder,
        )

    def _tell(self, run: _Run, text: str, ladder: Ladder | None) -> None:
        self._run = None
        self.entries.append(
            Entry(
                first=run.first, last=run.last, event=STEPS, text=text, ladder=ladder,
                kinds=dict(run.kinds),
            )
        )  # fmt: skip

    def _bound(self, ledger: Ledger, row: int) -> None:
        self._prompt_len = int(ledger.rows.prompt_len[row])
        self._decodes, self._rows = False, None

    def _folds(self, event: Any, row: int) -> bool:  # Any: one of the events that step a batch
        """Whether the event is part of a decode step: it goes on behind the prompt."""
        if self._whole or not isinstance(event, _STEPPING):
            return False
        if isinstance(event, Allocated):
            place = self._place_in(event.rows, row)
            self._decodes = int(event.allocated_len[place]) > self._prompt_len
        elif isinstance(event, Committed):
            place = self._place_in(event.rows, row)
            return self._decodes and int(event.committed_len[place]) > self._prompt_len
        return self._decodes

    def _place_in(self, rows: Any, row: int) -> int:  # Any: an int32 array
        # The rows of a batch come as one array for as long as it lives.
        if rows is not self._rows:
            self._rows, self._place = rows, int(np.flatnonzero(rows == row)[0])
        return self._place

    def _place_of(self, event: Any) -> int | None:  # Any: any event
        rows, row = getattr(event, "rows", None), self.follower.row
        return None if rows is None or row is None else self._place_in(rows, row)


def ladder_of_row(ledger: Ledger, row: int) -> Ladder:
    """The lengths of a row, and its pages in each group."""
    record = ledger.row_record(row)
    return Ladder(
        record.cache_protected_len,
        record.kv_committed_len,
        record.kv_allocated_len,
        tuple(
            int(np.count_nonzero(ledger.pages_of(row, group.idx))) for group in ledger.layout.groups
        ),
    )
