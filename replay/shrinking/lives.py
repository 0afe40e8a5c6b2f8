"""The lives of rows in a run: from one binding of a row to the next, with the pages each took."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.config import GroupLayout, Layout
from kvlife.events import Admitted, Event, Resized, Resumed, RolledBack, SessionRestored
from kvlife.ledger import Change, Ledger
from kvlife.ledger.spans import indices

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

# A life that began before the first event that was read.
UNKNOWN = -1


@attrs.define(eq=False)
class Life:
    """What one life of a row has at its table entries: per group, pages and keys by table index.

    Where an entry had several pages, one after another, it is the last.
    """

    pages: tuple[dict[int, int], ...]
    keys: tuple[dict[int, int], ...]

    @classmethod
    def empty(cls, num_groups: int) -> Life:
        """A life without a page."""
        return cls(
            tuple({} for _ in range(num_groups)),
            tuple({} for _ in range(num_groups)),
        )


class LifeNotes:
    """Whose life each row, page and request belongs to; a life is named by the seq of its binding.

    `of_page` is the life that took a page last, and `entry_of` where in its table; a page stays its
    until another takes it. `before` has for each life that a resumption began the one in which the
    request was retracted. `see` is shown each event before it is applied. Where a `book` is given,
    each life in it gets every page that it takes, at its table index.
    """

    def __init__(self, layout: Layout, book: Mapping[int, Life] | None = None) -> None:
        """Nothing is known yet."""
        self.book = book
        self.of_row: I64 = np.full(layout.num_rows, UNKNOWN, np.int64)
        self.of_page: list[I64] = [
            np.full(space.num_pages, UNKNOWN, np.int64) for space in layout.spaces
        ]
        self.entry_of: list[I64] = [np.zeros(space.num_pages, np.int64) for space in layout.spaces]
        self.of_request: dict[str, int] = {}
        self.before: dict[int, int] = {}

    def see(self, ledger: Ledger, event: Event, change: Change, seq: int) -> None:
        """Note who binds a row, and whose row takes pages."""
        match event:
            case Admitted() | Resumed():
                if isinstance(event, Resumed):
                    self.before[seq] = self.of_request.get(event.rid, UNKNOWN)
                self.of_row[event.row] = seq
                self.of_request[event.rid] = seq
            case SessionRestored():
                self.of_request[event.rid] = int(self.of_row[event.row])
            case Resized():
                self._resize(event.space, event.num_pages)
            case RolledBack() if event.copies.size:
                self._copied(ledger, event)
        if self.book is not None and change.joined is not None:
            self._hit(self.book, ledger, change)
        if change.taken is None or change.taken_at is None:
            return
        for group, pages, at in zip(
            ledger.layout.groups, change.taken, change.taken_at, strict=True
        ):
            if pages.size:
                spots = indices(at)[: pages.size]
                taken = pages[: spots.size]
                self.of_page[group.space_idx][taken] = self.of_row[spots // group.table_width]
                self.entry_of[group.space_idx][taken] = spots % group.table_width
                if self.book is not None:
                    self._enter(self.book, group, spots, taken)

    def _hit(self, book: Mapping[int, Life], ledger: Ledger, change: Change) -> None:
        """A prefix brings the keys of its pages along."""
        assert change.joined is not None  # the caller looked
        assert change.joined_at is not None  # where pages are joined, they have entries
        for group, pages, at in zip(
            ledger.layout.groups, change.joined, change.joined_at, strict=True
        ):
            keys = ledger.spaces[group.space_idx].key[pages].tolist()
            for spot, key in zip(indices(at).tolist(), keys, strict=False):
                row, entry = divmod(spot, group.table_width)
                life = book.get(int(self.of_row[row]))
                if life is not None and key:
                    life.keys[group.idx][entry] = key

    def _enter(
        self, book: Mapping[int, Life], group: GroupLayout, spots: npt.NDArray[np.intp], pages: I32
    ) -> None:
        for spot, page in zip(spots.tolist(), pages.tolist(), strict=True):
            row, entry = divmod(spot, group.table_width)
            life = book.get(int(self.of_row[row]))
            if life is not None:
                life.pages[group.idx][entry] = page

    def _copied(self, ledger: Ledger, event: RolledBack) -> None:
        committed = dict(zip(event.rows.tolist(), event.committed_len.tolist(), strict=True))
        for group_idx, row, _shared, new in event.copies.tolist():
            group = ledger.layout.groups[group_idx]
            self.of_page[group.space_idx][new] = self.of_row[row]
            self.entry_of[group.space_idx][new] = committed.get(row, 0) // group.page_size

    def _resize(self, space_idx: int, num_pages: int) -> None:
        for columns, fill in ((self.of_page, UNKNOWN), (self.entry_of, 0)):
            old = columns[space_idx]
            if num_pages > old.size:
                fresh = np.full(num_pages - old.size, fill, np.int64)
                columns[space_idx] = np.concatenate((old, fresh))
