"""How pages came to be lost: the event that touched each last, and the one that lost it.

A page is lost when a row that references it goes, and the event that takes the row does not name
the page. So the log is folded from the page's last event on, and its table entries are watched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import numpy as np

from kvlife.errors import KvLifeError
from kvlife.events import (
    Allocated,
    Committed,
    Digested,
    Evicted,
    Marked,
    Pinned,
    Recorded,
    StepDispatched,
    Unpinned,
)
from kvlife.invariants.effect import holder_of
from kvlife.ledger import Change, Ledger, RowState
from kvlife.replay.history.timeline import Moment, Timeline
from kvlife.replay.history.touches import PageWatch, Touch
from kvlife.replay.replaying.known import known_states

# So many events are folded, and known states before a page's last event tried, at most.
MAX_FOLDED = 1_000_000
MAX_STATES = 16

# None of these takes a page out of a row's table.
_KEEPS = (Allocated, Committed, Digested, Evicted, Marked, Pinned, StepDispatched, Unpinned)

Advance = Callable[[int], None]


@attrs.frozen(kw_only=True)
class Wanted:
    """A lost page; `unheld` says that its refs are not those of the rows that reference it."""

    space_idx: int
    page: int
    last_seq: int
    unheld: bool


@attrs.define
class Story:
    """What is known of a lost page; the rest is not in the log, or too far back.

    `touched` is what its last event did, `item` that event. After `lost` its refs were no longer
    those of the rows that reference it; `holders` had it until then.
    """

    touched: Touch | None = None
    item: Recorded | None = None
    lost: Recorded | None = None
    holders: tuple[str, ...] = ()


class _Watched:
    """One page: its table entries as long as rows have it, and the story so far."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.story = Story()
        self._watch = PageWatch(wanted.space_idx, wanted.page)
        self._entries: list[tuple[int, int]] = []
        self._holders: dict[int, str] = {}

    def begin(self, ledger: Ledger) -> bool:
        """Start from a state; False where the page is lost in it already."""
        self._watch.begin(ledger)
        self._entries = _entries_of(ledger, self.wanted)
        for _group, row in self._places(ledger):
            self._note_holder(ledger, row)
        return self._sound(ledger)

    def before(self, ledger: Ledger, change: Change) -> None:
        """Note who holds the event's row, as the event may end that."""
        self._watch.before(ledger, change)
        if change.row is not None:
            self._note_holder(ledger, change.row)

    def after(self, moment: Moment) -> bool:
        """Take up what an event did to the page; True where it lost it."""
        ledger, item = moment.ledger, moment.item
        touched = next(self._watch.after(ledger, item, moment.change), None)
        if item.seq == self.wanted.last_seq and touched is not None:
            self.story.touched, self.story.item = touched, item
        if touched is None and (isinstance(item.event, _KEEPS) or self._stands(ledger)):
            return False
        rows = {row for _group, row in self._places(ledger)}
        self._entries = _entries_of(ledger, self.wanted)
        if self._sound(ledger):
            for _group, row in self._places(ledger):
                self._note_holder(ledger, row)
            return False
        rows -= {row for _group, row in self._places(ledger)}
        self.story.lost = item
        self.story.holders = tuple(
            f"{self._holders.get(row, 'nobody')} (row {row})" for row in sorted(rows)
        )
        return True

    def _sound(self, ledger: Ledger) -> bool:
        refs = ledger.spaces[self.wanted.space_idx].refs
        return self.wanted.page >= refs.size or int(refs[self.wanted.page]) == len(self._entries)

    def _stands(self, ledger: Ledger) -> bool:
        return all(
            ledger.tables[group][entry] == self.wanted.page and _in_use(ledger, row)
            for (group, entry), (_group, row) in zip(
                self._entries, self._places(ledger), strict=True
            )
        )

    def _places(self, ledger: Ledger) -> list[tuple[int, int]]:
        groups = ledger.layout.groups
        return [(group, entry // groups[group].table_width) for group, entry in self._entries]

    def _note_holder(self, ledger: Ledger, row: int) -> None:
        if ledger.rows.state[row] == RowState.HELD:
            self._holders[row] = holder_of(ledger, row)


def _in_use(ledger: Ledger, row: int) -> bool:
    return bool(ledger.rows.state[row] in (RowState.HELD, RowState.DRAINING))


def _entries_of(ledger: Ledger, wanted: Wanted) -> list[tuple[int, int]]:
    """Where the tables of rows in use name a page: (group, entry)."""
    return [
        (group.idx, entry)
        for group in ledger.layout.groups
        if group.space_idx == wanted.space_idx
        for entry in np.flatnonzero(ledger.tables[group.idx] == wanted.page).tolist()
        if _in_use(ledger, entry // group.table_width)
    ]


class Teller:
    """Finds the stories of lost pages in a log, in a bounded number of events."""

    def __init__(self, timeline: Timeline, stop: int, advance: Advance = lambda _num: None) -> None:
        """Events below `stop` are looked at; `advance` hears how many more were folded."""
        self.timeline = timeline
        self.stop = stop
        self.advance = advance
        self.left = MAX_FOLDED

    def tell(self, pages: Sequence[Wanted]) -> list[Story]:
        """A story for each page; of what the log cannot be followed to, it says nothing."""
        watched = [_Watched(page) for page in pages]
        pending = sorted(watched, key=lambda one: one.wanted.last_seq)
        pending = [one for one in pending if one.wanted.last_seq >= self.timeline.first_seq]
        earlier: list[_Watched] = []
        try:
            while pending and self.left > 0:
                self._walk(pending, earlier)
            for one in earlier:
                self._look_back(one)
        except KvLifeError:
            # What the log has left to tell is damaged; what was found so far is told.
            pass
        return [one.story for one in watched]

    def _walk(self, pending: list[_Watched], earlier: list[_Watched]) -> None:
        """One fold from the first page that waits, until none is watched any more."""
        active: list[_Watched] = []

        def before(ledger: Ledger, item: Recorded, change: Change) -> None:
            while pending and pending[0].wanted.last_seq <= item.seq:
                one = pending.pop(0)
                if not one.begin(ledger) and one.wanted.unheld:
                    earlier.append(one)
                active.append(one)
            for one in active:
                one.before(ledger, change)

        start = pending[0].wanted.last_seq
        for moment in self.timeline.walk(start, self.stop, before=before):
            self._count()
            active = [
                one
                for one in active
                if not one.after(moment) and one.wanted.unheld and one not in earlier
            ]
            if self.left <= 0 or not active:
                return
        pending.clear()

    def _look_back(self, one: _Watched) -> None:
        """The page was lost before its last event: from a known state in which it was not."""
        known = [seq for seq in known_states(self.timeline.run) if seq < one.wanted.last_seq]
        for start in known[-MAX_STATES:][::-1]:
            if not one.begin(self.timeline.state(start)):
                continue
            walk = self.timeline.walk(
                start,
                one.wanted.last_seq,
                before=lambda ledger, _item, change: one.before(ledger, change),
            )
            for moment in walk:
                self._count()
                if one.after(moment) or self.left <= 0:
                    break
            return

    def _count(self) -> None:
        self.left -= 1
        if not self.left % 1024:
            self.advance(1024)
