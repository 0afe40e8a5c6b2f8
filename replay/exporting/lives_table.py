"""The table of pages' lives: a row from each taking of a page to its being FREE again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kvlife.events import (
    BY_CODE,
    Admitted,
    Evicted,
    PageLists,
    Protected,
    Recorded,
    Resumed,
    RolledBack,
    SessionRestored,
    StepSettled,
    Unpinned,
)
from kvlife.ledger import Change, Ledger, PageState
from kvlife.ledger.spans import indices
from kvlife.replay.exporting.parquet_table import ParquetTable
from kvlife.replay.history.timeline import Moment

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Index = npt.NDArray[np.intp]

_NEVER = -1
_PART = 1 << 16
_BY_PAGE = ("taken_seq", "taken_time_ns", "owner", "published_seq", "key", "hits", "last_hit_seq")


@attrs.define(eq=False)
class _Lives:
    """By page of one space: the life that goes on; `taken_seq` is `_NEVER` where none is known."""

    open: npt.NDArray[np.bool_]
    taken_seq: I64
    taken_time_ns: I64
    owner: I32
    published_seq: I64
    key: npt.NDArray[np.uint64]
    hits: I32
    last_hit_seq: I64

    @classmethod
    def create(cls, num_pages: int) -> _Lives:
        def numbers(dtype: Any) -> Any:  # Any: numpy's dtypes
            return np.full(num_pages, _NEVER, dtype)

        return cls(
            np.zeros(num_pages, np.bool_), numbers(np.int64), numbers(np.int64), numbers(np.int32),
            numbers(np.int64), np.zeros(num_pages, np.uint64), np.zeros(num_pages, np.int32),
            numbers(np.int64),
        )  # fmt: skip

    def grow(self, num_pages: int) -> None:
        """Make room for a space that was resized."""
        more = num_pages - self.open.size
        if more > 0:
            fresh = _Lives.create(more)
            for field in attrs.fields(_Lives):
                joined = np.concatenate([getattr(self, field.name), getattr(fresh, field.name)])
                setattr(self, field.name, joined)


class LifeRows:
    """Follows every page at once, by arrays; total on faulty events."""

    def __init__(self, ledger: Ledger, table: ParquetTable) -> None:
        self._table = table
        self._layout = ledger.layout
        self._lives = [_Lives.create(space.num_pages) for space in ledger.spaces]
        self._spaces = [group.space_idx for group in ledger.layout.groups]
        self._names: list[str] = []
        self._row_owner = np.full(ledger.layout.num_rows, _NEVER, np.int32)
        self._gone: list[tuple[int, I32]] = []
        self._protected = 0
        self._parts: list[dict[str, Any]] = []  # Any: arrays of every dtype
        self._num = 0

    def begin(self, ledger: Ledger) -> None:
        """Go on from a state: lives that ended unseen have no end, and begun ones no beginning."""
        self._row_owner[:] = _NEVER
        rows = ledger.rows
        for row in rows.in_use().tolist():
            self._row_owner[row] = self._name(rows.rid[row] or rows.session[row] or "")
        for space_idx, (space, lives) in enumerate(zip(ledger.spaces, self._lives, strict=True)):
            lives.grow(space.num_pages)
            self._write(space_idx, np.flatnonzero(lives.open).astype(np.int32), None)
            live = (space.state != PageState.FREE) & (space.state != PageState.RESERVED)
            pages = np.flatnonzero(live).astype(np.int32)
            self._open(lives, pages, _NEVER, _NEVER, np.full(pages.size, _NEVER, np.int32))
            lives.key[pages] = space.key[pages]

    def before(self, ledger: Ledger, item: Recorded, change: Change) -> None:
        """Note which pages the event may free."""
        event = item.event
        self._gone = list(self._each(change.gone))
        if isinstance(event, Evicted):
            self._gone += self._each(event.pages)
        elif isinstance(event, Unpinned):
            self._gone.append((self._spaces[event.group], event.pages))
        elif isinstance(event, StepSettled):
            step = ledger.steps.get(event.step)
            for group, pages in () if step is None else step.pinned:
                self._gone.append((self._spaces[group], pages))
        elif isinstance(event, Protected):
            self._gone += self._linked(event.rebinds, 2)
            self._protected = int(ledger.rows.protected[event.row])
        elif isinstance(event, RolledBack):
            self._gone += self._linked(event.copies, 2)

    def after(self, moment: Moment) -> None:
        """See which pages it freed, took, hit and published."""
        item, event, change = moment.item, moment.item.event, moment.change
        for space_idx, pages in self._gone:
            self._freed(moment.ledger, space_idx, pages, item)
        if isinstance(event, Admitted | Resumed | SessionRestored):
            self._row_owner[event.row] = self._name(event.rid)
        if change.taken is not None and change.taken_at is not None:
            for group, at in zip(self._layout.groups, change.taken_at, strict=True):
                pages = change.taken[group.idx]
                if pages.size:
                    self._taken(group.space_idx, pages, indices(at) // group.table_width, item)
        for space_idx, pages in self._each(change.joined):
            self._hit(space_idx, pages, item.seq)
        if isinstance(event, Protected):
            for space_idx, pages in self._linked(event.rebinds, 3):
                self._hit(space_idx, pages, item.seq)
            self._published(moment.ledger, event, item.seq)
        elif isinstance(event, RolledBack):
            for link in event.copies.tolist():
                space_idx, row, new = self._spaces[link[0]], link[1:2], link[3:]
                self._taken(space_idx, np.array(new, np.int32), np.array(row, np.intp), item)

    def finish(self) -> None:
        """Write the lives that go on behind the last event."""
        for space_idx, lives in enumerate(self._lives):
            self._write(space_idx, np.flatnonzero(lives.open).astype(np.int32), None)
        self._flush()

    def _name(self, name: str) -> int:
        self._names.append(name)
        return len(self._names) - 1

    def _each(self, lists: PageLists | None) -> Iterator[tuple[int, I32]]:
        for space_idx, pages in zip(self._spaces, lists or (), strict=False):
            if pages.size:
                yield space_idx, pages

    def _linked(self, links: I32, column: int) -> Iterator[tuple[int, I32]]:
        for group in set(links[:, 0].tolist()):
            yield self._spaces[group], links[links[:, 0] == group, column]

    def _taken(self, space_idx: int, pages: I32, rows: Index, item: Recorded) -> None:
        lives = self._lives[space_idx]
        lives.grow(int(pages.max()) + 1)
        num = min(pages.size, rows.size)
        owner = np.full(pages.size, _NEVER, np.int32)
        owner[:num] = self._row_owner[rows[:num]]
        # A page that is taken twice keeps the life that it has.
        new = ~lives.open[pages]
        self._open(lives, pages[new], item.seq, item.time_ns, owner[new])

    @staticmethod
    def _open(lives: _Lives, pages: I32, seq: int, time_ns: int, owner: I32) -> None:
        lives.open[pages] = True
        lives.taken_seq[pages] = seq
        lives.taken_time_ns[pages] = time_ns
        lives.owner[pages] = owner
        lives.published_seq[pages] = lives.last_hit_seq[pages] = _NEVER
        lives.key[pages] = lives.hits[pages] = 0

    def _hit(self, space_idx: int, pages: I32, seq: int) -> None:
        lives = self._lives[space_idx]
        np.add.at(lives.hits, pages, 1)
        lives.last_hit_seq[pages] = seq

    def _published(self, ledger: Ledger, event: Protected, seq: int) -> None:
        for group in ledger.layout.groups:
            low, high = (
                min(max(-(-length // group.page_size), 0), group.table_width)
                for length in (self._protected, event.protected_len)
            )
            base = event.row * group.table_width
            pages = ledger.tables[group.idx][base + low : base + max(low, high)]
            space, lives = ledger.spaces[group.space_idx], self._lives[group.space_idx]
            first = (space.state[pages] == PageState.CACHED) & (lives.published_seq[pages] < 0)
            # A page with a key has been published before the table begins.
            pages = pages[first & lives.open[pages] & (lives.key[pages] == 0)]
            lives.published_seq[pages] = seq
            lives.key[pages] = space.key[pages]

    def _freed(self, ledger: Ledger, space_idx: int, pages: I32, item: Recorded) -> None:
        space, lives = ledger.spaces[space_idx], self._lives[space_idx]
        pages = np.unique(pages)
        pages = pages[pages < min(space.num_pages, lives.open.size)]
        self._write(
            space_idx, pages[(space.state[pages] == PageState.FREE) & lives.open[pages]], item
        )

    def _write(self, space_idx: int, pages: I32, item: Recorded | None) -> None:
        """The lives of these pages end, at an event or unseen."""
        if not pages.size:
            return
        lives = self._lives[space_idx]
        part = {name: getattr(lives, name)[pages] for name in _BY_PAGE}
        part["page"] = pages
        part["space"] = np.full(pages.size, space_idx, np.int32)
        for name, value in (
            ("freed_seq", _NEVER if item is None else item.seq),
            ("freed_time_ns", 0 if item is None else item.time_ns),
            ("freed_by", _NEVER if item is None else item.event.CODE),
        ):
            part[name] = np.full(pages.size, value, np.int64)
        lives.open[pages] = False
        self._parts.append(part)
        self._num += pages.size
        if self._num >= _PART:
            self._flush()

    def _flush(self) -> None:
        if not self._parts:
            return
        whole = {
            name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]
        }
        self._parts, self._num = [], 0
        begun, ended = whole["taken_seq"] >= 0, whole["freed_seq"] >= 0
        spaces = [space.name for space in self._layout.spaces]
        self._table.add_columns(
            {
                "space": _named(whole["space"], spaces.__getitem__),
                "page": pa.array(whole["page"], pa.int32()),
                "taken_seq": _known(whole["taken_seq"], begun),
                "taken_time_ns": _known(whole["taken_time_ns"], begun),
                "request": _named(whole["owner"], self._names.__getitem__),
                "published_seq": _known(whole["published_seq"], whole["published_seq"] >= 0),
                "key": _known(whole["key"], whole["key"] != 0),
                "hits": pa.array(whole["hits"]),
                "last_hit_seq": _known(whole["last_hit_seq"], whole["last_hit_seq"] >= 0),
                "freed_seq": _known(whole["freed_seq"], ended),
                "freed_time_ns": _known(whole["freed_time_ns"], ended),
                "freed_by": _named(whole["freed_by"], lambda code: BY_CODE[code].__name__),
            }
        )


def _known(values: npt.NDArray[Any], there: npt.NDArray[np.bool_]) -> pa.Array:  # Any: every dtype
    return pa.array(values, mask=~there)


def _named(values: npt.NDArray[Any], name_of: Callable[[int], str]) -> pa.Array:  # Any: integers
    """Names for numbers; none for a negative one."""
    unequal, places = np.unique(values, return_inverse=True)
    names = ["" if number < 0 else name_of(number) for number in unequal.tolist()]
    return pa.DictionaryArray.from_arrays(
        pa.array(places.astype(np.int32), mask=values < 0), pa.array(names, pa.string())
    )
