"""A place in a run: the state before an event, the event, and what a fault finds to work with."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.config import GroupLayout
from kvlife.events import PageLists, Pinned, Retracted
from kvlife.events.arrays import I32, ints
from kvlife.ledger import Ledger, PageSpace, PageState, RowState, derive
from kvlife.ledger.spans import indices

T = TypeVar("T")


def links(rows: Sequence[Sequence[int]]) -> I32:
    """A read-only array of links."""
    array = np.array(rows, np.int32).reshape(-1, 4)
    array.setflags(write=False)
    return array


class Spot:
    """The ledger before an event, the event, and a source of chance. Nothing is changed here."""

    def __init__(self, ledger: Ledger, event: Any, rng: random.Random) -> None:
        # Any: each fault is asked about the classes of events that it names.
        self.ledger = ledger
        self.event = event
        self.rng = rng
        self.layout = ledger.layout

    def one(self, values: Iterable[T]) -> T | None:
        """One of them by chance; None where there is none. An entry of an array comes as an int."""
        some: list[T] = values.tolist() if isinstance(values, np.ndarray) else list(values)
        return self.rng.choice(some) if some else None

    def group(self, lists: PageLists) -> GroupLayout | None:
        """A group that is named some pages, by chance."""
        idx = self.one(idx for idx, pages in enumerate(lists) if len(pages))
        return None if idx is None else self.layout.groups[idx]

    def space(self, group: GroupLayout) -> PageSpace:
        """The page space of a group."""
        return self.ledger.spaces[group.space_idx]

    def rows(self, state: RowState) -> list[int]:
        """The rows in a state, row 0 apart."""
        found: list[int] = np.flatnonzero(self.ledger.rows.state == state).tolist()
        return found

    def other_row(self, *rows: int | None) -> int | None:
        """A HELD row that references a page of the base group, apart from these."""
        held = (row for row in self.rows(RowState.HELD) if row not in rows)
        return self.one(row for row in held if self.own(row, self.base).size)

    @property
    def base(self) -> GroupLayout:
        """The base group."""
        return self.layout.groups[self.layout.base]

    @property
    def shares_spaces(self) -> bool:
        """Whether several groups share a page space."""
        return len(self.layout.spaces) < len(self.layout.groups)

    def own(self, row: int, group: GroupLayout) -> I32:
        """The pages that a row references in a group."""
        pages: I32 = self.ledger.pages_of(row, group.idx)
        return pages.compress(pages != 0)

    def committed(self, *avoid: int) -> tuple[int, int, int] | None:
        """A PRIVATE page of the base group, all of its tokens committed: row, table index, page."""
        rows, group = self.ledger.rows, self.base
        state = self.space(group).state
        held = [row for row in self.rows(RowState.HELD) if row not in avoid]
        for row in self.rng.sample(held, len(held)):
            whole = int(rows.committed[row]) // group.page_size
            pages = self.ledger.pages_of(row, group.idx)[:whole]
            idx = self.where((pages > 0) & (state[pages] == PageState.PRIVATE))
            if idx is not None:
                return row, idx, int(pages[idx])
        return None

    def pages_in(self, group: GroupLayout, state: PageState, *, locked: bool | None = None) -> I32:
        """Pages in a state, of a group where they are not FREE, with refs or without."""
        space = self.space(group)
        chosen = space.state == state
        if state != PageState.FREE:
            chosen &= space.group == group.idx
        if locked is not None:
            chosen &= (space.refs > 0) == locked
        return np.flatnonzero(chosen).astype(np.int32)

    def free(self, group: GroupLayout, num: int, *avoid: int) -> list[int] | None:
        """FREE pages of a group's space, apart from some; None where there are not as many."""
        some = self.pages_in(group, PageState.FREE)
        named = self.named
        chosen = [page for page in some.tolist() if page not in avoid and page not in named]
        return chosen[:num] if len(chosen) >= num else None

    @property
    def named(self) -> set[int]:
        """The pages that the sound event takes, whatever their group."""
        lists = (*getattr(self.event, "pages", ()), *getattr(self.event, "restored", ()))
        return {int(page) for pages in lists for page in np.atleast_1d(pages)}

    def where(self, mask: npt.NDArray[np.bool_]) -> int | None:
        """A place that is True, by chance; None where none is."""
        places: list[int] = np.flatnonzero(mask).tolist()
        return self.one(places)

    def pinned(
        self, pages: Iterable[int], *, writes: bool = False, owner: str | None = None
    ) -> Pinned:
        """A pin on pages of the base group."""
        return Pinned("pin", "copy", writes, owner, self.base.idx, ints(pages))

    def naming_gone(self, event: Any) -> Any:  # Any: an event that lets pages go
        """The event, naming just the pages that the ledger lets go by it."""
        gone_at = derive(self.ledger, event).gone_at or ()
        lists = tuple(
            ints(page for page in table[indices(at)].tolist() if page)
            for table, at in zip(self.ledger.tables, gone_at, strict=True)
        )
        if isinstance(event.pages, np.ndarray):
            return attrs.evolve(event, pages=lists[event.group])
        return attrs.evolve(event, pages=lists)

    def with_list(self, event: Any, group: GroupLayout, pages: Iterable[int]) -> Any:  # Any: ditto
        """The event with other pages in one group."""
        if isinstance(event.pages, np.ndarray):
            return attrs.evolve(event, pages=ints(pages))
        return attrs.evolve(event, pages=replaced(event.pages, group.idx, ints(pages)))

    def leaving_one_out(self) -> Any | None:  # Any: ditto
        """The event with a page less in one of its groups, by chance; None where it names none."""
        group = self.group(self.event.pages)
        if group is None:
            return None
        pages = self.event.pages[group.idx].tolist()
        del pages[self.rng.randrange(len(pages))]
        return self.with_list(self.event, group, pages)


def replaced(values: tuple[T, ...], idx: int, value: T) -> tuple[T, ...]:
    """The tuple with one entry replaced."""
    return (*values[:idx], value, *values[idx + 1 :])


def changed(
    array: npt.NDArray[Any], idx: int, value: int
) -> npt.NDArray[Any]:  # Any: lengths, keys
    """The array with one entry replaced, read-only."""
    other = array.copy()
    other[idx] = value
    other.setflags(write=False)
    return other


def unlike_backup(ledger: Ledger, event: Retracted) -> bool:
    """Whether a retraction takes more or fewer host pages than the row has pages to keep."""
    saved = derive(ledger, event).saved
    return saved is not None and saved.host_pages.size != saved.pages.size
