"""Watching one page or one row while a log is folded: what each event did to it, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.config import GroupLayout
from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Digested,
    Evicted,
    Pinned,
    Recorded,
    Released,
    Resumed,
    Retracted,
    RolledBack,
    SessionRestored,
    StepDispatched,
    StepSettled,
    Unpinned,
    WindowEvicted,
)
from kvlife.invariants.effect import holder_of
from kvlife.ledger import Change, Ledger, PageSpace, PageState, RowState
from kvlife.ledger.spans import indices
from kvlife.replay.output.event_words import HOST

I32 = npt.NDArray[np.int32]

# These give a row to a request, which holds it in the state behind them and not in that before.
_BINDS = (Admitted, Resumed, SessionRestored)


@attrs.frozen(kw_only=True)
class Touch:
    """What an event did to a page or row; `begins` where a life of it begins."""

    seq: int
    step: int
    time_ns: int
    event: str
    where: str
    text: str
    begins: bool


@attrs.frozen
class _PageFacts:
    state: int
    refs: int
    pins: int
    key: int


class PageWatch:
    """Watches a page of a page space; of the host's where `space_idx` is None."""

    def __init__(self, space_idx: int | None, page: int) -> None:
        self.space_idx = space_idx
        self.page = page

    def begin(self, ledger: Ledger) -> None:
        """Start from a state."""
        self._facts = self._look(ledger)
        self._stamp = self._last_event(ledger)
        self._holder = ""

    def before(self, ledger: Ledger, change: Change) -> None:
        """Note who holds the event's row, as the event may end that."""
        if change.row is not None:
            self._holder = holder_of(ledger, change.row)

    def after(self, ledger: Ledger, item: Recorded, change: Change) -> Iterator[Touch]:
        """What the event did to the page, if anything."""
        if isinstance(item.event, Digested):
            yield from self._digested(ledger, item, item.event)
            return
        stamp = self._last_event(ledger)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        old, new = self._facts, self._look(ledger)
        self._facts = new
        taken = old.state == PageState.FREE and new.state != PageState.FREE
        text = ", ".join(self._words(ledger, item, change, old, new))
        yield self._touch(ledger, item, text, begins=taken)

    def _touch(self, ledger: Ledger, item: Recorded, text: str, *, begins: bool) -> Touch:
        return Touch(
            seq=item.seq,
            step=item.step,
            time_ns=item.time_ns,
            event=type(item.event).__name__,
            where=f"page {self.page} of {self._name(ledger)}",
            text=text,
            begins=begins,
        )

    def _digested(self, ledger: Ledger, item: Recorded, event: Digested) -> Iterator[Touch]:
        """A digest leaves no trace in the state."""
        if ledger.layout.groups[event.group].space_idx != self.space_idx:
            return
        for digest in event.digests[event.pages == self.page].tolist():
            yield self._touch(ledger, item, f"content complete, digest {digest:016x}", begins=False)

    def pending(self) -> Touch | None:
        """Nothing is held back."""
        return None

    def _words(
        self, ledger: Ledger, item: Recorded, change: Change, old: _PageFacts, new: _PageFacts
    ) -> Iterator[str]:
        yield _moved("", PageState(old.state).name, PageState(new.state).name).strip()
        if old.refs != new.refs:
            yield _moved("refs ", old.refs, new.refs)
        if old.pins != new.pins:
            yield _moved("pins ", old.pins, new.pins)
        if new.key and new.key != old.key:
            yield f"published as {new.key:016x}"
        event = item.event
        if self.space_idx is None and isinstance(event, Retracted | Resumed | Released):
            yield f"for the backup of request {event.rid}"
        elif isinstance(event, Pinned | Unpinned):
            yield f"by pin {event.pin_id}"
        elif isinstance(event, Evicted):
            yield f"for {event.reason}"
        elif change.row is not None:
            bound = isinstance(event, _BINDS) or not self._holder
            holder = holder_of(ledger, change.row) if bound else self._holder
            yield f"by row {change.row} ({holder})"
        else:
            yield from self._spot(ledger, change)

    def _spot(self, ledger: Ledger, change: Change) -> Iterator[str]:
        """Which row of a batch the page comes to, or leaves."""
        for group in ledger.layout.groups:
            if group.space_idx != self.space_idx:
                continue
            for spot in _spots_of(change, group, self.page):
                yield _as_entry(ledger, group, spot)

    def _name(self, ledger: Ledger) -> str:
        return HOST if self.space_idx is None else ledger.layout.spaces[self.space_idx].name

    def _space(self, ledger: Ledger) -> PageSpace:
        space = ledger.host if self.space_idx is None else ledger.spaces[self.space_idx]
        assert space is not None  # pages of the host are watched only where there is one
        return space

    def _look(self, ledger: Ledger) -> _PageFacts:
        space, page = self._space(ledger), self.page
        if page >= space.num_pages:
            return _PageFacts(PageState.FREE, 0, 0, 0)
        return _PageFacts(
            int(space.state[page]), int(space.refs[page]), int(space.pins[page]),
            int(space.key[page]),
        )  # fmt: skip

    def _last_event(self, ledger: Ledger) -> int:
        stamps = self._space(ledger).last_event
        return int(stamps[self.page]) if self.page < len(stamps) else -1


class RowWatch:
    """Watches a row; of the events that only step its batch, the last before another is told."""

    def __init__(self, row: int) -> None:
        self.row = row
        self._held_back: Recorded | None = None

    def begin(self, ledger: Ledger) -> None:
        """Start from a state."""
        self._holder = holder_of(ledger, self.row)
        self._held_back = None
        self._rows: I32 | None = None
        self._concerned = False

    def before(self, ledger: Ledger, change: Change) -> None:
        """Note who holds the row, as the event may end that."""
        if change.row == self.row:
            self._holder = holder_of(ledger, self.row)

    def after(self, ledger: Ledger, item: Recorded, change: Change) -> Iterator[Touch]:
        """What the event did to the row, if anything."""
        event = item.event
        if change.row is None and change.index is None and not isinstance(event, StepDispatched):
            return
        if not self._names(item, change):
            return
        if isinstance(event, Allocated | Committed | StepDispatched):
            self._held_back = item
            return
        held_back = self.pending()
        if held_back is not None:
            yield held_back
        yield Touch(
            seq=item.seq,
            step=item.step,
            time_ns=item.time_ns,
            event=type(event).__name__,
            where=f"row {self.row}",
            text=", ".join(self._words(ledger, item)),
            begins=isinstance(event, Admitted | Resumed),
        )

    def pending(self) -> Touch | None:
        """The last step of the row's batch, where nothing has been told since."""
        item, self._held_back = self._held_back, None
        if item is None:
            return None
        return Touch(
            seq=item.seq,
            step=item.step,
            time_ns=item.time_ns,
            event=type(item.event).__name__,
            where=f"row {self.row}",
            text=self._stepped(item.event),
            begins=False,
        )

    def _names(self, item: Recorded, change: Change) -> bool:
        if change.row is not None:
            return change.row == self.row
        # The rows of a batch come as one array for as long as it lives.
        rows = getattr(item.event, "rows", None)
        if rows is None:
            rows = getattr(item.event, "drained", None)
        if rows is not self._rows:
            self._rows = rows
            self._concerned = rows is not None and bool((rows == self.row).any())
        return self._concerned

    def _stepped(self, event: Any) -> str:  # Any: one of three events that name rows
        place = int(np.flatnonzero(event.rows == self.row)[0])
        if isinstance(event, StepDispatched):
            return f"dispatched in step {event.step}"
        if isinstance(event, Allocated):
            return f"allocated {event.allocated_len[place]}"
        return f"committed {event.committed_len[place]}"

    def _words(self, ledger: Ledger, item: Recorded) -> Iterator[str]:
        event = item.event
        if isinstance(event, _BINDS):
            yield f"bound by request {event.rid}, prompt {event.prompt_len}"
        else:
            yield self._holder
        if isinstance(event, Released):
            yield event.reason
        if isinstance(event, StepSettled):
            yield f"drained with step {event.step}"
        yield ladder_of(ledger, self.row)
        if isinstance(event, RolledBack | WindowEvicted) and len(event.rows) > 1:
            yield f"one of {len(event.rows)} rows"


def rows_naming(ledger: Ledger, change: Change, evidence: Mapping[str, object]) -> tuple[int, ...]:
    """The first few rows to which an event gives, or from which it takes, the evidence's pages."""
    pages = evidence.get("pages")
    rows: dict[int, None] = {}
    for page in pages[:4] if isinstance(pages, list) else ():
        for group in ledger.layout.groups:
            for spot in _spots_of(change, group, page):
                rows[spot // group.table_width] = None
    return tuple(rows)[:4]


def _spots_of(change: Change, group: GroupLayout, page: int) -> Iterator[int]:
    """The table entries of a group that a page comes to, or leaves."""
    for pages, at in (
        (change.taken, change.taken_at),
        (change.joined, change.joined_at),
        (change.gone, change.gone_at),
    ):
        if pages is not None and at is not None:
            where = np.flatnonzero(pages[group.idx] == page)
            spots = indices(at[group.idx])
            yield from spots[where[where < spots.size]].tolist()


def ladder_of(ledger: Ledger, row: int) -> str:
    """The lengths of a row, or its state where it holds none."""
    state = RowState(int(ledger.rows.state[row]))
    if state != RowState.HELD:
        return f"then {state.name}"
    record = ledger.row_record(row)
    told = (
        f"protected {record.cache_protected_len}, committed {record.kv_committed_len},"
        f" allocated {record.kv_allocated_len}"
    )
    for cursor in record.swa_evicted_seqlens:
        told += f", window from {cursor}"
    return told


def _moved(what: str, old: object, new: object) -> str:
    return f"{what}{old}" if old == new else f"{what}{old} -> {new}"


def _as_entry(ledger: Ledger, group: GroupLayout, spot: int) -> str:
    row, place = divmod(spot, group.table_width)
    return f"page {place} of row {row} ({holder_of(ledger, row)})"
