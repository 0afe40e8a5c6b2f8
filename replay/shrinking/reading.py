"""Reading the pieces of a program from the events of a run, those of some lives or of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.config import Layout
from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Digested,
    Event,
    Evicted,
    Marked,
    Pinned,
    Protected,
    Released,
    Resized,
    Resumed,
    Retracted,
    RolledBack,
    SessionClosed,
    SessionRestored,
    SessionSaved,
    StepDispatched,
    StepSettled,
    Unpinned,
    Violated,
    WindowEvicted,
)
from kvlife.events.arrays import NO_LINKS
from kvlife.ledger import EMPTY
from kvlife.ledger.entries import span_entries
from kvlife.ledger.spans import indices
from kvlife.replay.shrinking.lives import I64, UNKNOWN, Life, LifeNotes

I32 = npt.NDArray[np.int32]

NO_KEYS = np.empty(0, np.uint64)
NO_KEYS.setflags(write=False)

Batch = Allocated | Committed | RolledBack | WindowEvicted
RowEvent = (
    Admitted
    | Resumed
    | Protected
    | Released
    | Retracted
    | SessionSaved
    | SessionRestored
    | SessionClosed
)


@attrs.frozen(eq=False)
class Piece:
    """One event of a program, a batch of one row at most, and the lives of the rows it names."""

    event: Event
    lives: tuple[int, ...] = ()


class Reading:
    """Takes up the events of some lives, piece by piece; `see` is shown one after another.

    Pages and keys that the events name outright are kept by life; `at_end` has the rest.
    """

    def __init__(
        self, layout: Layout, wanted: Iterable[int] | None = None, notes: LifeNotes | None = None
    ) -> None:
        """Start before the binding of every wanted life (None: all lives are).

        `notes`, where given, say whose the pages of evictions and pins are.
        """
        self.pieces: list[Piece] = []
        self.lives: dict[int, Life] = {}
        self._layout = layout
        self._no_pages = (EMPTY,) * len(layout.groups)
        self._no_keys = (NO_KEYS,) * len(layout.groups)
        self._wanted: I64 | None = None
        if wanted is not None:
            self._wanted = np.array(sorted(wanted), np.int64)
        self._notes = notes
        self._life_of: I64 = np.full(layout.num_rows, UNKNOWN, np.int64)
        self._protected: dict[int, int] = {}
        self._requests: dict[str, int] = {}
        self._steps: set[int] = set()
        self._pins: set[str] = set()
        self._sessions: set[str] = set()

    def see(self, event: Event, seq: int) -> None:
        """Take up what the event does to the lives that are wanted."""
        match event:
            case Admitted() | Resumed():
                self._bound(event, seq)
            case Protected() if self._life_of[event.row] != UNKNOWN:
                self._published(event)
            case SessionRestored() if self._life_of[event.row] != UNKNOWN:
                life = int(self._life_of[event.row])
                self._protected[life] = min(self._protected[life], event.kept_len)
                self._requests[event.rid] = life
        self.pieces.extend(self._pieces(event))

    def _bound(self, event: Admitted | Resumed, seq: int) -> None:
        wanted = self._wanted is None or bool(np.isin(seq, self._wanted))
        self._life_of[event.row] = seq if wanted else UNKNOWN
        if not wanted:
            return
        life = self.lives[seq] = Life.empty(len(self._layout.groups))
        self._protected[seq] = event.prefix_len
        self._requests[event.rid] = seq
        for group, pages in zip(self._layout.groups, event.pages, strict=True):
            cursor = 0 if group.window_idx is None else event.evicted_len[group.window_idx]
            at = span_entries(group, event.row, 0, event.prefix_len, event.evict_floor, cursor)
            entries = (indices(at) - event.row * group.table_width).tolist()
            life.pages[group.idx].update(zip(entries, pages.tolist(), strict=False))

    def _published(self, event: Protected) -> None:
        name = int(self._life_of[event.row])
        life, old = self.lives[name], max(self._protected[name], 0)
        for group, keys in zip(self._layout.groups, event.keys, strict=True):
            for entry, key in enumerate(keys.tolist(), old // group.page_size):
                if key:
                    life.keys[group.idx][entry] = key
        self._protected[name] = event.protected_len

    def _pieces(self, event: Event) -> Iterator[Piece]:
        match event:
            case Allocated() | Committed() | RolledBack() | WindowEvicted():
                lives = self._life_of[event.rows]
                for i in np.flatnonzero(lives != UNKNOWN).tolist():
                    yield Piece(self._one_row(event, i), (int(lives[i]),))
            case StepDispatched():
                lives = self._life_of[event.rows]
                rows = own(event.rows[lives != UNKNOWN])
                if rows.size:
                    self._steps.add(event.step)
                    names = tuple(lives[lives != UNKNOWN].tolist())
                    yield Piece(StepDispatched(event.step, rows), names)
            case StepSettled():
                if event.step in self._steps:
                    self._steps.discard(event.step)
                    yield Piece(StepSettled(event.step, EMPTY, self._no_pages))
            case Evicted() | Pinned() | Unpinned():
                yield from self._of_pages(event)
            case Resized():
                yield Piece(event)
            case Marked() | Violated() | Digested():
                # Notes; and other lives put other contents into the pages.
                return
            case _:
                yield from self._of_row(event)

    def _of_pages(self, event: Evicted | Pinned | Unpinned) -> Iterator[Piece]:
        if isinstance(event, Evicted):
            lists = tuple(
                self._wanted_of(group.space_idx, part)
                for group, part in zip(self._layout.groups, event.pages, strict=True)
            )
            if any(map(len, lists)):
                yield Piece(Evicted(event.reason, lists))
        elif isinstance(event, Pinned):
            pages = self._wanted_of(self._layout.groups[event.group].space_idx, event.pages)
            if pages.size:
                self._pins.add(event.pin_id)
                yield Piece(attrs.evolve(event, pages=pages))
        elif event.pin_id in self._pins:
            self._pins.discard(event.pin_id)
            yield Piece(event)

    def _of_row(self, event: RowEvent) -> Iterator[Piece]:
        if isinstance(event, SessionClosed) and event.row is None:
            if event.session_id in self._sessions:
                yield Piece(event)
        elif event.row is None:
            if getattr(event, "rid", None) in self._requests:
                yield Piece(event)
        elif self._life_of[event.row] != UNKNOWN:
            life = int(self._life_of[event.row])
            if isinstance(event, SessionSaved):
                self._sessions.add(event.session_id)
            yield Piece(event, (life,))
            if isinstance(event, Admitted | Resumed):
                yield from (Piece(part, (life,)) for part in self._instead_of_hit(event))

    def _instead_of_hit(self, event: Admitted | Resumed) -> Iterator[Event]:
        """What brings the row as far where its prefix is not to be had; else it means nothing."""
        end = event.restored_len if isinstance(event, Resumed) else event.prefix_len
        if end <= 0:
            return
        rows, length = int32s([event.row]), int32s([end])
        cursors = tuple(int32s([cursor]) for cursor in event.evicted_len)
        yield Allocated(rows, length, self._no_pages, cursors or None)
        yield Committed(rows, length)
        yield Protected(event.row, event.prefix_len, self._no_keys, NO_LINKS)

    def _wanted_of(self, space_idx: int, pages: I32) -> I32:
        if self._wanted is None or self._notes is None:
            return pages
        return own(pages[np.isin(self._notes.of_page[space_idx][pages], self._wanted)])

    def _one_row(self, event: Batch, i: int) -> Event:
        """The part of a batch that concerns its i-th row, without pages."""
        rows = own(event.rows[i : i + 1])
        if isinstance(event, Committed):
            return Committed(rows, own(event.committed_len[i : i + 1]))
        if isinstance(event, WindowEvicted):
            return WindowEvicted(event.group, rows, own(event.evicted_len[i : i + 1]), EMPTY)
        allocated = own(event.allocated_len[i : i + 1])
        if isinstance(event, Allocated):
            cursors = event.evicted_len
            if cursors is not None:
                cursors = tuple(own(cursor[i : i + 1]) for cursor in cursors)
            return Allocated(rows, allocated, self._no_pages, cursors)
        copies = own(event.copies[event.copies[:, 1] == event.rows[i]])
        committed = own(event.committed_len[i : i + 1])
        return RolledBack(rows, allocated, committed, self._no_pages, copies)


def int32s(values: Sequence[int]) -> I32:
    """A read-only array of these numbers."""
    array = np.array(values, np.int32)
    array.setflags(write=False)
    return array


def own(array: I32) -> I32:
    """A copy that nobody can write into."""
    copy = array.copy()
    copy.setflags(write=False)
    return copy


def rows_named(event: Event) -> Sequence[int]:
    """The rows that an event names, in its order."""
    if isinstance(event, Batch | StepDispatched):
        found: list[int] = event.rows.tolist()
        return found
    if isinstance(event, StepSettled):
        return [int(row) for row in event.drained]
    row = getattr(event, "row", None)
    return [] if row is None else [row]
