"""An event held against the ledger: lengths before and after it, and the pages it moves.

This is the clear form that the guards read, made only when a fast proof has failed or a user's
own guard asks; its speed does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.events import (
    Admitted,
    Protected,
    Released,
    Resumed,
    Retracted,
    RolledBack,
    SessionClosed,
    StepDispatched,
)
from kvlife.invariants.finding import Evidence, few, naming
from kvlife.ledger import PageState, RowState
from kvlife.ledger.spans import At, indices

if TYPE_CHECKING:
    from kvlife.config import GroupLayout
    from kvlife.events import Event
    from kvlife.ledger import Change, Ledger, PageSpace

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Index = npt.NDArray[np.intp]

NO_PAGES: I32 = np.empty(0, np.int32)
NO_ENTRIES: Index = np.empty(0, np.intp)


@attrs.frozen(eq=False)
class Ladder:
    """Lengths in tokens of some rows, one entry each; `cursors` has one array a window group."""

    protected: I64
    committed: I64
    allocated: I64
    settled: I64
    floor: I64
    cursors: tuple[I64, ...]


@attrs.frozen(eq=False)
class Moves:
    """The pages of one group that an event moves, and the table entries they stand at.

    `gone` are the pages named as let go, `leaving` what the table has where the lengths say that
    a row lets go (zeros left out), at entries `leaving_at`. `links` are rebinds and copies as
    (row, table index, page let go, page put there).
    """

    group: GroupLayout
    gone: I32
    leaving: I32
    leaving_at: Index
    taken: I32
    taken_at: Index
    joined: I32
    joined_at: Index
    links: I64


class Effect:
    """What an event does to a ledger that it has not been applied to yet.

    A post-check is given one whose ledger is the one after the event: there `before` and `moves`
    say nothing, and `rows`, `event` and `change` are what they were.
    """

    def __init__(self, ledger: Ledger, event: Event, change: Change) -> None:
        """Nothing is gathered until it is asked for."""
        self.ledger = ledger
        self.event = event
        self.change = change

    @property
    def binds(self) -> bool:
        """Whether the event binds a row anew."""
        return isinstance(self.event, Admitted | Resumed)

    @cached_property
    def rows(self) -> Index:
        """The rows that the event names, in its order."""
        if self.change.index is not None:
            return self.change.index
        if self.change.row is not None:
            return np.array([self.change.row], np.intp)
        if isinstance(self.event, StepDispatched):
            return self.event.rows.astype(np.intp)
        return NO_ENTRIES

    @cached_property
    def before(self) -> Ladder:
        """The lengths that the ledger has for these rows."""
        rows, index = self.ledger.rows, self.rows
        return Ladder(
            protected=rows.protected[index].astype(np.int64),
            committed=rows.committed[index].astype(np.int64),
            allocated=rows.allocated[index].astype(np.int64),
            settled=rows.settled[index].astype(np.int64),
            floor=rows.floor[index].astype(np.int64),
            cursors=tuple(column[index].astype(np.int64) for column in rows.cursors),
        )

    @cached_property
    def after(self) -> Ladder:
        """The lengths that these rows will have."""
        old, change = self.before, self.change
        cursors = change.cursors or (None,) * len(old.cursors)
        floor = old.floor
        if isinstance(self.event, Admitted | Resumed):
            floor = np.full(len(self.rows), self.event.evict_floor, np.int64)
        return Ladder(
            protected=_replaced(old.protected, change.protected),
            committed=_replaced(old.committed, change.committed),
            allocated=_replaced(old.allocated, change.allocated),
            settled=_replaced(old.settled, change.settled),
            floor=floor,
            cursors=tuple(map(_replaced, old.cursors, cursors)),
        )

    @property
    def keeps_its_pages(self) -> bool:
        """Whether a whole row goes while steps in flight still read it, so that it will drain."""
        row = self.change.row
        if row is None or not isinstance(self.event, Released | Retracted | SessionClosed):
            return False
        rows = self.ledger.rows
        return bool(rows.in_flight[row] > 0 and rows.state[row] == RowState.HELD)

    def space_of(self, group: GroupLayout) -> PageSpace:
        """The page space that serves a group."""
        return self.ledger.spaces[group.space_idx]

    @cached_property
    def moves(self) -> tuple[Moves, ...]:
        """The pages that leave and enter rows, group by group."""
        return tuple(self._moves_of(group) for group in self.ledger.layout.groups)

    def _moves_of(self, group: GroupLayout) -> Moves:
        change, idx = self.change, group.idx
        leaving_at = _at(change.gone_at, idx)
        leaving = self.ledger.tables[idx][leaving_at]
        return Moves(
            group=group,
            gone=_named(change.gone, idx),
            leaving=leaving[leaving != 0],
            leaving_at=leaving_at,
            taken=_named(change.taken, idx),
            taken_at=_at(change.taken_at, idx),
            joined=_named(change.joined, idx),
            joined_at=_at(change.joined_at, idx),
            links=self._links_of(group),
        )

    def _links_of(self, group: GroupLayout) -> I64:
        event = self.event
        if isinstance(event, Protected):
            links: I64 = event.rebinds[event.rebinds[:, 0] == group.idx].astype(np.int64)
            links[:, 0] = event.row
            return links
        if isinstance(event, RolledBack):
            copies = event.copies[event.copies[:, 0] == group.idx].astype(np.int64)
            ends = dict(zip(event.rows.tolist(), event.committed_len.tolist(), strict=True))
            last = group.table_width - 1
            spots = [
                min(max(ends.get(row, 0) // group.page_size, 0), last)
                for row in copies[:, 1].tolist()
            ]
            table_idx = np.array(spots, np.int64).reshape(-1)
            return np.stack((copies[:, 1], table_idx, copies[:, 2], copies[:, 3]), axis=1)
        return np.empty((0, 4), np.int64)

    def held_by_rows(self, group: GroupLayout) -> I32:
        """Every page that the named rows reference in a group, once for each reference."""
        table = self.ledger.tables[group.idx].reshape(-1, group.table_width)
        held: I32 = table[self.rows].ravel()
        return held.compress(held != 0)

    def let_go_by_space(self) -> list[I64]:
        """Per page space, every page that the event lets go, rebinds and copies included."""
        return self.by_space([(moves.gone, moves.links[:, 2]) for moves in self.moves])

    def taken_by_space(self) -> list[I64]:
        """Per page space, every page that the event takes as FREE, copies included."""
        copies = isinstance(self.event, RolledBack)
        return self.by_space(
            [(moves.taken, moves.links[:, 3] if copies else NO_PAGES) for moves in self.moves]
        )

    def by_space(self, lists: Iterable[tuple[npt.NDArray[Any], ...]]) -> list[I64]:  # Any: ints
        """Pages listed for each group, in one or several arrays, joined per page space."""
        found: list[list[I64]] = [[] for _ in self.ledger.spaces]
        for group, parts in zip(self.ledger.layout.groups, lists, strict=True):
            found[group.space_idx] += [part.astype(np.int64) for part in parts]
        return [np.concatenate(parts) if parts else NO_PAGES.astype(np.int64) for parts in found]

    def page_evidence(self, space_idx: int, pages: npt.ArrayLike, **more: object) -> Evidence:
        """Evidence that names pages of a space, their states, and who touched them last."""
        return page_evidence(self.ledger, space_idx, pages, **more)


def page_evidence(ledger: Ledger, space_idx: int, pages: npt.ArrayLike, **more: object) -> Evidence:
    """Pages of a space, their states, refs and pins, and the seq of the last event of each."""
    space = ledger.spaces[space_idx]
    evidence = {"space": ledger.layout.spaces[space_idx].name} | naming(pages=pages)
    known = [page for page in few(pages) if 0 <= page < space.num_pages]
    evidence["states"] = state_names(space.state[known])
    evidence["refs"] = few(space.refs[known])
    evidence["pins"] = few(space.pins[known])
    evidence["last_events"] = [int(space.last_event[page]) + ledger.seq_base for page in known]
    return evidence | more


def state_names(states: npt.ArrayLike) -> list[str]:
    """The first few page states by name; one that does not exist by its number."""
    return [
        PageState(state).name if state < len(PageState) else f"state {state}"
        for state in few(states)
    ]


def holders(ledger: Ledger, rows: npt.ArrayLike) -> list[str]:
    """Who holds each of the first few rows, in words."""
    return [holder_of(ledger, row) for row in few(rows)]


def holder_of(ledger: Ledger, row: int) -> str:
    """Who holds a row: request, session, both, or its state."""
    rid, session = ledger.rows.rid[row], ledger.rows.session[row]
    if rid is None and session is None:
        state = ledger.rows.state[row]
        return RowState(state).name if state < len(RowState) else f"state {state}"
    parts = ([] if rid is None else [f"request {rid}"]) + (
        [] if session is None else [f"session {session}"]
    )
    return " of ".join(parts)


def _replaced(old: I64, new: Any) -> I64:  # Any: an int, an int32 array, or None for unchanged
    return old if new is None else np.broadcast_to(np.asarray(new, np.int64), old.shape)


def _named(lists: tuple[I32, ...] | None, idx: int) -> I32:
    return NO_PAGES if lists is None else lists[idx]


def _at(entries: tuple[At, ...] | None, idx: int) -> Index:
    return NO_ENTRIES if entries is None else indices(entries[idx])


def surplus(left: npt.ArrayLike, right: npt.ArrayLike) -> I64:
    """The distinct values that stand more often in `left` than in `right`."""
    left, right = np.asarray(left, np.int64), np.asarray(right, np.int64)
    values, inverse = np.unique(np.concatenate((left, right)), return_inverse=True)
    counts = np.bincount(inverse[: left.size], minlength=values.size)
    counts = counts - np.bincount(inverse[left.size :], minlength=values.size)
    return values[counts > 0]


def repeated(values: npt.ArrayLike) -> I64:
    """The distinct values that stand more than once."""
    found, counts = np.unique(np.asarray(values, np.int64), return_counts=True)
    return found[counts > 1]
