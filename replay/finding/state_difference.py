"""Where two states differ: pages, rows and books, in words, the first few of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.invariants.effect import holder_of
from kvlife.ledger import Ledger, PageSpace, PageState, RowState
from kvlife.replay.output.columns import counted
from kvlife.replay.output.event_words import HOST, numbers
from kvlife.replay.output.quoting import printable

Index = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]

# So many of each kind are told; the rest is only counted.
MAX_TOLD = 8

_PAGE_COLUMNS = ("state", "group", "refs", "pins", "key")
_LENGTHS = ("protected", "committed", "allocated", "prompt_len", "floor", "in_flight")


@attrs.frozen
class Entry:
    """A page, a row or an entry of the books, and what it is in each of two states."""

    what: str
    left: str
    right: str


@attrs.frozen
class StateDifference:
    """The first entries that differ, and how many do of each kind; `pages` and `rows` by number.

    When events happened, and how often a row changed hands, is no difference.
    """

    entries: tuple[Entry, ...]
    counts: Mapping[str, int]
    pages: tuple[tuple[int, int], ...]
    rows: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        """Whether the states are the same."""
        return not self.counts

    @property
    def told(self) -> str:
        """How many of each kind differ, in words."""
        kinds = self.counts.items()
        return ", ".join(counted(num, kind.removesuffix("s"), kind) for kind, num in kinds)


def difference_of(left: Ledger, right: Ledger) -> StateDifference:
    """Compare two ledgers, whose pools may be of different sizes."""
    entries: list[Entry] = []
    counts: dict[str, int] = {}
    named: list[tuple[int, int]] = []
    pairs = [*_pairs(left, right)]
    for pair in pairs:
        pages = _pages_apart(pair.left, pair.right)
        _count(counts, "host pages" if pair.idx is None else "pages", pages.size)
        if pair.idx is not None:
            named += [(pair.idx, page) for page in pages[:MAX_TOLD].tolist()]
        entries += _of_pair(pair, pages)
    rows = _rows_apart(left, right)
    _count(counts, "rows", rows.size)
    entries += [_of_row(left, right, row) for row in rows[:MAX_TOLD].tolist()]
    for name in ("requests", "waiting", "sessions", "pins", "steps"):
        mine, other = _book(left, name), _book(right, name)
        apart = [key for key in {**mine, **other} if mine.get(key) != other.get(key)]
        _count(counts, name, len(apart))
        for key in apart[:MAX_TOLD]:
            what = f"{_ONE[name]} {printable(str(key))}"
            entries.append(Entry(what, mine.get(key, "none"), other.get(key, "none")))
    for pair in pairs:
        entry = _free_lists(pair)
        if entry is not None:
            _count(counts, "free lists", 1)
            entries.append(entry)
    return StateDifference(tuple(entries), counts, tuple(named), tuple(rows[:MAX_TOLD].tolist()))


@attrs.frozen(eq=False)
class _Pair:
    """A page space of two states; `idx` is None for the host's.

    `groups` are for each state the names of the cache groups that share it, or none.
    """

    name: str
    left: PageSpace
    right: PageSpace
    idx: int | None
    groups: tuple[tuple[str, ...], tuple[str, ...]]


def _pairs(left: Ledger, right: Ledger) -> Iterator[_Pair]:
    """The spaces that both states have, the host's last."""
    for space, mine, other in zip(left.layout.spaces, left.spaces, right.spaces, strict=False):
        groups = (_sharing(left, space.idx), _sharing(right, space.idx))
        yield _Pair(space.name, mine, other, space.idx, groups)
    if left.host is not None and right.host is not None:
        yield _Pair(HOST, left.host, right.host, None, ((), ()))


def _sharing(ledger: Ledger, space_idx: int) -> tuple[str, ...]:
    """The names of all groups where several share a space, else none."""
    groups = ledger.layout.groups
    several = sum(group.space_idx == space_idx for group in groups) > 1
    return tuple(group.name for group in groups) if several else ()


_ONE = {
    "requests": "request",
    "waiting": "waiting request",
    "sessions": "session",
    "pins": "pin",
    "steps": "step",
}


def _count(counts: dict[str, int], name: str, num: int) -> None:
    if num:
        counts[name] = counts.get(name, 0) + num


def _pages_apart(left: PageSpace, right: PageSpace) -> Index:
    num = min(left.num_pages, right.num_pages)
    apart = np.zeros(max(left.num_pages, right.num_pages), np.bool_)
    apart[num:] = True
    for name in _PAGE_COLUMNS:
        apart[:num] |= getattr(left, name)[:num] != getattr(right, name)[:num]
    return np.flatnonzero(apart)


def _of_pair(pair: _Pair, pages: Index) -> Iterator[Entry]:
    """Pages of a space, those to which the same has happened in one entry."""
    mine, other, name = pair.left, pair.right, pair.name
    if mine.num_pages != other.num_pages:
        yield Entry(
            f"size of {name}", counted(mine.num_pages, "page"), counted(other.num_pages, "page")
        )
    # The first page of each kind of difference, and all pages of that kind.
    columns = [*_seen(mine, pages), *_seen(other, pages)]
    _, first, kinds = np.unique(
        np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True
    )
    for kind in np.argsort(first)[:MAX_TOLD].tolist():
        alike = pages[kinds.ravel() == kind]
        page = int(alike[0])
        with_key = alike.size == 1 and _key(mine, page) != _key(other, page)
        told = [
            _page(side, page, groups, with_key=with_key)
            for side, groups in zip((mine, other), pair.groups, strict=True)
        ]
        which = f"page {page}" if alike.size == 1 else f"pages {numbers(alike)}"
        yield Entry(f"{which} of {name}", *told)


def _seen(space: PageSpace, pages: Index) -> Iterator[npt.NDArray[np.int64]]:
    """What of some pages is told, column by column; a page that is not there is -1."""
    there = pages[pages < space.num_pages]
    for column in (space.state, space.group, space.refs, space.pins, space.key != 0):
        seen = np.full(pages.size, -1, np.int64)
        seen[: there.size] = column[there]
        yield seen


def _key(space: PageSpace, page: int) -> int:
    return int(space.key[page]) if page < space.num_pages else 0


def _page(space: PageSpace, page: int, groups: tuple[str, ...], *, with_key: bool) -> str:
    if page >= space.num_pages:
        return "not there"
    told = PageState(space.state[page]).name
    if space.state[page] == PageState.FREE and not space.refs[page] and not space.pins[page]:
        return told
    told += f", refs {space.refs[page]}"
    if space.pins[page]:
        told += f", pins {space.pins[page]}"
    if with_key:
        told += f", key {space.key[page]:016x}"
    if groups:
        told += f", of group {groups[space.group[page]]}"
    return told


def _rows_apart(left: Ledger, right: Ledger) -> Index:
    mine, other = left.rows, right.rows
    num = min(len(mine.state), len(other.state))
    apart = np.zeros(max(len(mine.state), len(other.state)), np.bool_)
    for rows in (mine, other):
        extra = rows.in_use()
        apart[extra[extra >= num]] = True
    live = np.union1d(mine.in_use(), other.in_use())
    live = live[live < num]
    unlike = mine.state[live] != other.state[live]
    for name in _LENGTHS:
        unlike |= getattr(mine, name)[live] != getattr(other, name)[live]
    unlike |= _settled(left, live) != _settled(right, live)
    if len(mine.cursors) == len(other.cursors):
        unlike |= (mine.cursors[:, live] != other.cursors[:, live]).any(axis=0)
    for idx in range(min(len(left.tables), len(right.tables))):
        unlike |= _tables_apart(left, right, idx, live)
    held = [(mine.rid[row], mine.session[row]) for row in live.tolist()]
    held_there = [(other.rid[row], other.session[row]) for row in live.tolist()]
    unlike |= np.fromiter(map(_unequal, held, held_there), np.bool_, live.size)
    apart[live] |= unlike
    return np.flatnonzero(apart)


def _unequal(left: object, right: object) -> bool:
    return left != right


def _settled(ledger: Ledger, rows: Index) -> npt.NDArray[np.int32]:
    found: npt.NDArray[np.int32] = np.minimum(
        ledger.rows.settled[rows], ledger.rows.allocated[rows]
    )
    return found


def _tables_apart(left: Ledger, right: Ledger, idx: int, live: Index) -> Bools:
    mine, other = _table(left, idx), _table(right, idx)
    width = min(mine.shape[1], other.shape[1])
    apart: Bools = (mine[live, :width] != other[live, :width]).any(axis=1)
    return apart


def _table(ledger: Ledger, idx: int) -> npt.NDArray[np.int32]:
    return ledger.tables[idx].reshape(-1, ledger.layout.groups[idx].table_width)


def _of_row(left: Ledger, right: Ledger, row: int) -> Entry:
    """A row in words: its holder, and what of it is not the same in the other state."""
    mine, other = _row(left, row), _row(right, row)
    apart = [name for name in {**mine, **other} if mine.get(name) != other.get(name)]
    told = [
        ", ".join(f"{name} {side[name]}" if name else side[name] for name in apart if name in side)
        for side in (mine, other)
    ]
    what = f"row {row}"
    if mine.get("") == other.get("") and mine.get(""):
        what += f" ({mine['']})"
    return Entry(what, told[0] or "the same", told[1] or "the same")


def _row(ledger: Ledger, row: int) -> dict[str, str]:
    """What a row is, by the name of what it says; its holder stands under no name."""
    if row >= len(ledger.rows.state):
        return {"": "not there"}
    if ledger.rows.state[row] == RowState.FREE:
        return {"": "FREE"}
    told = {"": printable(holder_of(ledger, row))}
    settled = int(_settled(ledger, np.array([row]))[0])
    if settled != ledger.rows.allocated[row]:
        told["settled"] = str(settled)
    for name in _LENGTHS:
        column: Any = getattr(ledger.rows, name)  # Any: named columns of integers
        told[name] = str(column[row])
    for group in ledger.layout.window_groups:
        told[f"cursor of {group.name}"] = str(ledger.rows.cursors[group.window_idx or 0, row])
    for group in ledger.layout.groups:
        told[f"pages of {group.name}"] = numbers(ledger.pages_of(row, group.idx)) or "none"
    return told


def _book(ledger: Ledger, name: str) -> dict[str | int, str]:
    """One of the ledger's books, each entry in words that leave out when it was made."""
    if name == "requests":
        return {rid: f"on row {row}" for rid, row in ledger.requests.items()}
    if name == "waiting":
        return {
            rid: f"prompt {kept.prompt_len}, committed {kept.committed_len}, "
            + ("no backup" if kept.backup is None else f"host pages {numbers(kept.backup)}")
            for rid, kept in ledger.waiting.items()
        }
    if name == "sessions":
        return {
            session_id: f"on row {kept.row}, kept {kept.kept_len}, "
            + ("idle" if kept.rid is None else f"in a turn of {printable(kept.rid)}")
            for session_id, kept in ledger.sessions.items()
        }
    if name == "pins":
        return {
            pin_id: f"{printable(pin.kind)}, {'writes' if pin.writes else 'reads'} pages"
            f" {numbers(pin.pages)} of {ledger.layout.groups[pin.group].name}, "
            + ("no owner" if pin.owner is None else f"of request {printable(pin.owner)}")
            for pin_id, pin in ledger.pins.items()
        }
    return {step: f"rows {numbers(opened.rows)}" for step, opened in ledger.steps.items()}


def _free_lists(pair: _Pair) -> Entry | None:
    """The same free pages in another order: the next allocations will differ."""
    mine, other = pair.left.free, pair.right.free
    if mine.num_free != other.num_free or not mine.num_free:
        return None
    heads = [free.head(free.num_free) for free in (mine, other)]
    places = np.flatnonzero(heads[0] != heads[1])
    if not places.size or not np.array_equal(np.sort(heads[0]), np.sort(heads[1])):
        return None
    place = int(places[0])
    told = [f"page {head[place]}" for head in heads]
    return Entry(
        f"free list of {pair.name}: what is taken {counted(place, 'page')} from now", *told
    )
