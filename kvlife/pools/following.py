"""How the device state follows each kind of event, with the kernels that move pages.

What an event names is done in the order in which the ledger does it, so that a faulty event leaves
the same state in both. Where the lists of a faulty event do not fit the table entries that it
concerns, entries without a page are cleared, and pages without an entry change their state alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kvlife.events import pool, requests
from kvlife.kernels.bind_pages import bind_pages
from kvlife.kernels.change_pages import Transition, change_pages
from kvlife.kernels.rebind import rebind
from kvlife.kernels.release_pages import release_pages
from kvlife.kernels.share_pages import share_pages
from kvlife.ledger.rows import ROW_FREE
from kvlife.ledger.spans import At, indices, num_at

if TYPE_CHECKING:
    from torch import Tensor

    from kvlife.events import Event
    from kvlife.ledger import Change, Ledger
    from kvlife.ledger.books import OpenStep
    from kvlife.pools.device_state import DeviceState
    from kvlife.pools.uploading import Uploads

I32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]
# The pages of a group that an event freed; 0 stands for one that it did not.
Freed = tuple[int, "Tensor"]

_NO_ENTRY = -1
_NONE_SPARED: Counter[int | None] = Counter()


class EventFold:
    """Applies events to a device state, each after the ledger has applied it."""

    def __init__(self, state: DeviceState, ledger: Ledger, uploads: Uploads) -> None:
        """Follow from the state in which the ledger is."""
        self.state = state
        self.ledger = ledger
        self.uploads = uploads
        self._freed: list[Freed] = []
        # Each open step, with how many of its pins are on the device.
        self._steps: dict[int, tuple[OpenStep, int]] = {
            step: (opened, len(opened.pinned)) for step, opened in ledger.steps.items()
        }
        self._last_index: tuple[Index, Tensor] | None = None
        # On a CPU, numpy writes into the same memory in a third of the time.
        on_cpu = state.device.type == "cpu"
        self._committed: I32 | None = state.committed.numpy() if on_cpu else None

    def apply(self, event: Event, change: Change, seq: int) -> list[Freed]:
        """Follow an event; the pages that became FREE by it."""
        follow = _FOLLOW.get(event.__class__)
        if follow is None:
            return []
        self._freed = []
        follow(self, event, change, seq)
        return self._freed

    def index_of(self, index: Index) -> Tensor:
        """Rows on the device, int64; the last answer is kept for the same array."""
        kept = self._last_index
        if kept is not None and kept[0] is index:
            return kept[1]
        there = self.uploads.one(index)
        self._last_index = (index, there)
        return there

    def let_go(self, change: Change, seq: int) -> None:
        """Entries are cleared, and pages lose a reference."""
        for group, at, pages in _per_group(change.gone_at, change.gone):
            self.release(group, at, pages, seq)

    def release(self, group: int, at: At, pages: I32, seq: int) -> None:
        """As `let_go`, for one group."""
        views = self.state.groups[group]
        entries, named = self._paired(group, at, pages)
        if entries is not None:
            freed = release_pages(
                views.table, views.state, views.refs, views.pins, entries, named,
                violations=self.state.violations, seq=seq, group=group,
            )  # fmt: skip
            self._freed.append((group, freed))

    def join(self, change: Change, seq: int) -> None:
        """Entries get shared pages."""
        for group, at, pages in _per_group(change.joined_at, change.joined):
            self._place(share_pages, group, at, pages, seq)

    def take(self, change: Change, seq: int) -> None:
        """Entries get FREE pages."""
        for group, at, pages in _per_group(change.taken_at, change.taken):
            self.bind(group, at, pages, seq)

    def bind(self, group: int, at: At, pages: I32, seq: int) -> None:
        """As `take`, for one group."""
        self._place(bind_pages, group, at, pages, seq)

    def _place(self, kernel: Callable[..., None], group: int, at: At, pages: I32, seq: int) -> None:
        views = self.state.groups[group]
        entries, named = self._paired(group, at, pages)
        if entries is not None:
            kernel(
                views.table, views.state, views.refs, entries, named,
                violations=self.state.violations, seq=seq, group=group,
            )  # fmt: skip

    def _paired(self, group: int, at: At, pages: I32) -> tuple[Tensor | None, Tensor | None]:
        """Entries and pages on the device, one for one."""
        num, spots = num_at(at), indices(at)
        if num > pages.size:
            self.state.groups[group].table[self.uploads.one(spots[pages.size :])] = 0
            spots = spots[: pages.size]
        elif num < pages.size:
            spots = np.concatenate((spots, np.full(pages.size - num, _NO_ENTRY, np.intp)))
        if not pages.size:
            return None, None
        entries, named = self.uploads.several(spots, pages)
        return entries, named

    def rebind(self, group: int, at: Index, own: I32, canonical: I32, seq: int) -> None:
        """Entries get canonical pages in place of own ones, which lose a reference."""
        views = self.state.groups[group]
        # Of links that name one entry, the last one stays in it, as in the ledger.
        last = at.size - 1 - np.unique(at[::-1], return_index=True)[1]
        spots = np.full(at.size, _NO_ENTRY, np.intp)
        spots[last] = at[last]
        freed = rebind(
            views.table, views.state, views.refs, views.pins,
            *self.uploads.several(spots, own, canonical),
            violations=self.state.violations, seq=seq, group=group,
        )  # fmt: skip
        self._freed.append((group, freed))

    def change(self, group: int, pages: I32, transition: Transition, seq: int) -> None:
        """Publish, evict, pin or unpin pages."""
        if not pages.size:
            return
        views = self.state.groups[group]
        freed = change_pages(
            views.state, views.refs, views.pins, self.uploads.one(pages), transition,
            violations=self.state.violations, seq=seq, group=group,
        )  # fmt: skip
        if transition in (Transition.EVICT, Transition.UNPIN):
            self._freed.append((group, freed))

    def set_lengths(self, change: Change) -> None:
        """The lengths that change, of one row or of many."""
        state = self.state
        columns = [
            (state.protected, change.protected),
            (state.committed, change.committed),
            (state.allocated, change.allocated),
            *zip(state.cursors, change.cursors or (), strict=False),
        ]
        changing = [(column, values) for column, values in columns if values is not None]
        if change.row is not None:
            for column, value in changing:
                column[change.row] = int(value)
            return
        assert change.index is not None  # a change is of one row or of many
        index = self.index_of(change.index)
        there = self.uploads.several(*(values for _column, values in changing))
        for (column, _values), values in zip(changing, there, strict=True):
            column.scatter_(0, index, values)

    def set_committed(self, change: Change) -> None:
        """As `set_lengths` for a commit, which comes with every step."""
        assert change.index is not None  # a batch event
        if self._committed is not None:
            self._committed[change.index] = change.committed
        else:
            there = self.uploads.one(change.committed)
            self.state.committed.scatter_(0, self.index_of(change.index), there)

    def reset_rows(self, rows: Index, seq: int) -> None:
        """Rows that the ledger has made FREE by this event have no lengths any more."""
        columns, state = self.ledger.rows, self.state
        gone = rows[(columns.state[rows] == ROW_FREE) & (columns.last_event[rows] == seq)]
        if gone.size:
            there = self.uploads.one(gone)
            for column in (state.protected, state.committed, state.allocated, state.floor):
                column[there] = 0
            state.cursors[:, there] = 0

    def open_step(self, step: int) -> None:
        """Remember a step, for the pages that are pinned under it."""
        self._steps[step] = (self.ledger.steps[step], 0)

    def close_step(self, step: int, seq: int) -> None:
        """What was pinned under a step is unpinned."""
        opened, num = self._steps.pop(step, (None, 0))
        if opened is not None:
            for group, pages in opened.pinned[:num]:
                self.change(group, pages, Transition.UNPIN, seq)

    def pin_leaving(self, seq: int, spare: Counter[int | None] = _NONE_SPARED) -> None:
        """Pin what the ledger has pinned under open steps by this event.

        The last `spare` of each step are pinned by the caller, in their turn.
        """
        for step, (opened, num) in self._steps.items():
            total = len(opened.pinned)
            if total > num:
                self._steps[step] = (opened, total)
                for group, pages in opened.pinned[num : total - spare[step]]:
                    self.change(group, pages, Transition.PIN, seq)

    def flight_of(self, row: int) -> int | None:
        """The open step under which what leaves a row is pinned, if any."""
        rows = self.ledger.rows
        step = int(rows.newest_step[row])
        return step if rows.in_flight[row] > 0 and step in self._steps else None


def _per_group(
    at: tuple[At, ...] | None, pages: tuple[I32, ...] | None
) -> list[tuple[int, At, I32]]:
    if at is None or pages is None:
        return []
    return [
        (group, spots, named)
        for group, (spots, named) in enumerate(zip(at, pages, strict=True))
        if named.size or num_at(spots)
    ]


def _bound(
    fold: EventFold, event: requests.Admitted | requests.Resumed, change: Change, seq: int
) -> None:
    if event.row == 0:
        return
    fold.state.floor[event.row] = event.evict_floor
    fold.join(change, seq)
    fold.take(change, seq)
    fold.set_lengths(change)


def _allocated(fold: EventFold, _event: requests.Allocated, change: Change, seq: int) -> None:
    fold.take(change, seq)
    fold.set_lengths(change)


def _committed(fold: EventFold, _event: requests.Committed, change: Change, _seq: int) -> None:
    fold.set_committed(change)


def _protected(fold: EventFold, event: requests.Protected, change: Change, seq: int) -> None:
    step = fold.flight_of(event.row)
    fold.pin_leaving(seq, Counter({step: np.unique(event.rebinds[:, 0]).size}))
    for group in fold.ledger.layout.groups:
        base, width = event.row * group.table_width, group.table_width
        links = event.rebinds[event.rebinds[:, 0] == group.idx]
        if links.size:
            at = base + links[:, 1].astype(np.intp)
            own, canonical = links[:, 2].copy(), links[:, 3].copy()
            if step is not None:
                fold.change(group.idx, own, Transition.PIN, seq)
            fold.rebind(group.idx, at, own, canonical, seq)
        keys = event.keys[group.idx]
        low = min(max(change.old_protected or 0, 0) // group.page_size, width)
        high = min(low + keys.size, width)
        pages = fold.ledger.tables[group.idx][base + low : base + high]
        chosen = (keys[: high - low] != 0) & (pages != 0)
        fold.change(group.idx, pages[chosen], Transition.PUBLISH, seq)
    fold.set_lengths(change)


def _rolled_back(fold: EventFold, event: requests.RolledBack, change: Change, seq: int) -> None:
    links = event.copies.tolist()
    flights = [fold.flight_of(row) for _group, row, _shared, _new in links]
    fold.pin_leaving(seq, Counter(flights))
    fold.let_go(change, seq)
    fold.set_lengths(change)
    committed = dict(zip(event.rows.tolist(), event.committed_len.tolist(), strict=True))
    for (group, row, shared, new), step in zip(links, flights, strict=True):
        layout = fold.ledger.layout.groups[group]
        idx = min(max(committed.get(row, 0) // layout.page_size, 0), layout.table_width - 1)
        at = row * layout.table_width + idx
        pages = np.array([shared], np.int32)
        if step is not None:
            fold.change(group, pages, Transition.PIN, seq)
        fold.release(group, slice(at, at + 1), pages, seq)
        fold.bind(group, slice(at, at + 1), np.array([new], np.int32), seq)


def _window_evicted(
    fold: EventFold, _event: requests.WindowEvicted, change: Change, seq: int
) -> None:
    fold.let_go(change, seq)
    fold.set_lengths(change)


def _evicted(fold: EventFold, event: pool.Evicted, _change: Change, seq: int) -> None:
    for group, pages in enumerate(event.pages):
        fold.change(group, pages, Transition.EVICT, seq)


def _unbound(
    fold: EventFold,
    event: requests.Released | requests.Retracted | pool.SessionClosed,
    change: Change,
    seq: int,
) -> None:
    fold.let_go(change, seq)
    if event.row is not None:
        fold.reset_rows(np.array([event.row], np.intp), seq)


def _trimmed(
    fold: EventFold, _event: pool.SessionSaved | pool.SessionRestored, change: Change, seq: int
) -> None:
    fold.pin_leaving(seq)
    fold.let_go(change, seq)
    fold.set_lengths(change)


def _step_dispatched(
    fold: EventFold, event: pool.StepDispatched, _change: Change, _seq: int
) -> None:
    fold.open_step(event.step)


def _step_settled(fold: EventFold, event: pool.StepSettled, change: Change, seq: int) -> None:
    fold.close_step(event.step, seq)
    fold.let_go(change, seq)
    fold.reset_rows(event.drained.astype(np.intp), seq)


def _pinned(fold: EventFold, event: pool.Pinned, _change: Change, seq: int) -> None:
    fold.change(event.group, event.pages, Transition.PIN, seq)


def _unpinned(fold: EventFold, event: pool.Unpinned, _change: Change, seq: int) -> None:
    fold.change(event.group, event.pages, Transition.UNPIN, seq)


def _resized(fold: EventFold, _event: pool.Resized, _change: Change, _seq: int) -> None:
    fold.state.resize(fold.ledger.layout)


# Any: each function takes the event type it stands beside. Notes change nothing.
_FOLLOW: dict[type, Callable[[EventFold, Any, Change, int], None]] = {
    requests.Admitted: _bound,
    requests.Resumed: _bound,
    requests.Allocated: _allocated,
    requests.Committed: _committed,
    requests.Protected: _protected,
    requests.RolledBack: _rolled_back,
    requests.WindowEvicted: _window_evicted,
    requests.Released: _unbound,
    requests.Retracted: _unbound,
    pool.Evicted: _evicted,
    pool.SessionSaved: _trimmed,
    pool.SessionRestored: _trimmed,
    pool.SessionClosed: _unbound,
    pool.StepDispatched: _step_dispatched,
    pool.StepSettled: _step_settled,
    pool.Pinned: _pinned,
    pool.Unpinned: _unpinned,
    pool.Resized: _resized,
}
