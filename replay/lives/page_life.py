"""The life of one page, read from as little of a log as tells it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import attrs
import numpy as np

from kvlife.errors import ConfigError, KvLifeError
from kvlife.events import Recorded
from kvlife.invariants.effect import holder_of
from kvlife.ledger import Change, Ledger, PageSpace, PageState
from kvlife.log.names import StretchNames
from kvlife.replay.history.passages import Passage, passages_of
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.history.touches import PageWatch, Touch

Advance = Callable[[int], None]
Quiet = Callable[[StretchNames], bool]


@attrs.frozen(kw_only=True)
class PageNow:
    """What a page is in a state: `rows` reference it, `pins` and `steps` hold it beside them.

    `group` is the index of the cache group that took it, or of the only one that can; None for a
    FREE page of a space that several groups share, and for one of the host. `waiting` are the
    requests that keep it for a backup, where it is the host's.
    """

    state: PageState
    group: int | None
    refs: int
    num_pins: int
    key: int
    last_seq: int
    rows: tuple[int, ...]
    holders: tuple[str, ...]
    pins: tuple[str, ...]
    steps: tuple[int, ...]
    waiting: tuple[str, ...] = ()

    @property
    def in_use(self) -> bool:
        """Whether a life of the page goes on."""
        return self.state is not PageState.FREE


@attrs.frozen(kw_only=True)
class PageLife:
    """What happened to a page, in order.

    `origin` is the touch with which its present life began, or its last one where it is FREE; None
    where that was not found. `unread` are seqs [start, stop) that may tell more, and `troubles`
    says what could not be read.
    """

    touches: tuple[Touch, ...]
    origin: Touch | None
    unread: tuple[tuple[int, int], ...] = ()
    troubles: tuple[str, ...] = ()


def space_of(ledger: Ledger, space_idx: int | None) -> PageSpace:
    """A page space by its index, the host's for None; `ConfigError` where there is no such."""
    if space_idx is not None:
        return ledger.spaces[space_idx]
    if ledger.host is None:
        raise ConfigError("the pools of this log have no pages on the host")
    return ledger.host


def page_now(ledger: Ledger, space_idx: int | None, page: int) -> PageNow:
    """A page in a state; the page must be one of the space's, or of the host's for None."""
    space = space_of(ledger, space_idx)
    if space_idx is None:
        return _host_page_now(ledger, space, page)
    groups = [group for group in ledger.layout.groups if group.space_idx == space_idx]
    rows: dict[int, None] = {}
    for group in groups:
        spots = np.flatnonzero(ledger.tables[group.idx] == page)
        rows.update(dict.fromkeys((spots // group.table_width).tolist()))
    of_space = {group.idx for group in groups}
    state = PageState(int(space.state[page]))
    owner = int(space.group[page]) if state is not PageState.FREE else None
    if len(groups) == 1:
        owner = groups[0].idx
    return PageNow(
        state=state,
        group=owner if owner in of_space else None,
        refs=int(space.refs[page]),
        num_pins=int(space.pins[page]),
        key=int(space.key[page]),
        last_seq=int(space.last_event[page]) + ledger.seq_base,
        rows=tuple(rows),
        holders=tuple(holder_of(ledger, row) for row in rows),
        pins=tuple(
            name
            for name, pin in ledger.pins.items()
            if pin.group in of_space and bool((pin.pages == page).any())
        ),
        steps=tuple(
            number
            for number, step in ledger.steps.items()
            if any(
                group in of_space and bool((pages == page).any()) for group, pages in step.pinned
            )
        ),
    )


def _host_page_now(ledger: Ledger, host: PageSpace, page: int) -> PageNow:
    return PageNow(
        state=PageState(int(host.state[page])),
        group=None,
        refs=int(host.refs[page]),
        num_pins=int(host.pins[page]),
        key=int(host.key[page]),
        last_seq=int(host.last_event[page]) + ledger.seq_base,
        rows=(),
        holders=(),
        pins=(),
        steps=(),
        waiting=tuple(
            rid
            for rid, left in ledger.waiting.items()
            if left.backup is not None and bool((left.backup == page).any())
        ),
    )


def present_life(
    timeline: Timeline, space_idx: int | None, page: int, ledger: Ledger, advance: Advance
) -> PageLife:
    """The present life of a page in the state `ledger`, or its last one where it is FREE.

    Its beginning and what happened last are read; what lies between may be left unread.
    """
    reader = _Reader(timeline, space_idx, page, advance)
    passages = passages_of(timeline, ledger.next_seq)
    now = page_now(ledger, space_idx, page)
    late = _latest(reader, passages, now)
    if late is None:
        return PageLife(touches=(), origin=None, troubles=tuple(reader.troubles))
    place, touches = late
    origin = _origin(touches)
    unread: list[tuple[int, int]] = []
    ends = place
    while origin is None and place > 0:
        place -= 1
        if not passages[place].may_hold(lambda names: names.takes_page(space_idx, page)):
            continue
        earlier = reader.read(passages[place])
        origin = _origin(earlier)
        if origin is not None:
            if place + 1 < ends:
                unread.append((passages[place].stop, passages[ends].start))
            touches = earlier + touches
    begins = 0 if origin is None else touches.index(origin)
    return PageLife(
        touches=tuple(touches[begins:]),
        origin=origin,
        unread=tuple(unread),
        troubles=tuple(reader.troubles),
    )


def whole_history(
    timeline: Timeline, space_idx: int | None, page: int, stop: int, advance: Advance
) -> PageLife:
    """All that happened to a page below `stop`."""
    reader = _Reader(timeline, space_idx, page, advance)
    touches: list[Touch] = []
    # At the very beginning every page is FREE.
    quiet: Quiet = _never if timeline.first_seq else partial(_unnamed, space_idx, page)
    for passage in passages_of(timeline, stop):
        if not all(names is not None and quiet(names) for names in passage.names):
            touches += reader.read(passage)
            quiet = _quiet_when(reader.ledger, space_idx, page)
        else:
            advance(passage.stop - passage.start)
    return PageLife(
        touches=tuple(touches), origin=_origin(touches), troubles=tuple(reader.troubles)
    )


def _latest(
    reader: _Reader, passages: Sequence[Passage], now: PageNow
) -> tuple[int, list[Touch]] | None:
    """The newest passage in which the page was touched, and what happened from there on."""
    later: list[Touch] = []
    first = 0
    for place in range(len(passages) - 1, -1, -1):
        passage = passages[place]
        # The state knows when the page was touched last, but for digests of its content.
        last = now.in_use and passage.start <= now.last_seq
        if last or _may_name(passage, reader.where, now, newest=place == len(passages) - 1):
            first, later = place, reader.read(passage) + later
            if last or (later and not now.in_use):
                return first, later
    return (first, later) if later else None


def _may_name(
    passage: Passage, where: tuple[int | None, int], now: PageNow, *, newest: bool
) -> bool:
    """Whether to look for the page in a passage; while in use, only where that is likely."""
    if now.in_use and not newest and None in passage.names:
        return False
    return passage.may_hold(lambda names: names.names_page(*where))


def _origin(touches: Sequence[Touch]) -> Touch | None:
    return next((touch for touch in reversed(touches) if touch.begins), None)


def _never(_names: StretchNames) -> bool:
    return False


def _unnamed(space_idx: int | None, page: int, names: StretchNames) -> bool:
    return not names.names_page(space_idx, page)


def _quiet_when(ledger: Ledger | None, space_idx: int | None, page: int) -> Quiet:
    """Which names say that nothing happens to the page in a passage that begins in this state.

    Events that take a page, reference it or let it go name it. Publishing names the row alone, and
    what a pin or a step in flight holds may go when that ends.
    """
    if ledger is None:
        return _never
    if page >= space_of(ledger, space_idx).num_pages:
        return partial(_unnamed, space_idx, page)
    now = page_now(ledger, space_idx, page)
    if now.state is PageState.QUARANTINED or now.num_pins:
        return _never
    rows = now.rows if now.state is PageState.PRIVATE else ()
    return lambda names: _unnamed(space_idx, page, names) and not any(map(names.names_row, rows))


class _Reader:
    """Walks passages and watches the page; `ledger` is the state behind the last one."""

    def __init__(
        self, timeline: Timeline, space_idx: int | None, page: int, advance: Advance
    ) -> None:
        self.where = (space_idx, page)
        self.troubles: list[str] = []
        self.ledger: Ledger | None = None
        self._timeline = timeline
        self._advance = advance

    def read(self, passage: Passage) -> list[Touch]:
        """What happens to the page in a passage, as far as it can be read."""
        watch = PageWatch(*self.where)
        touches: list[Touch] = []
        expected: int | None = None

        def before(ledger: Ledger, item: Recorded, change: Change) -> None:
            if item.seq != expected:
                watch.begin(ledger)
            watch.before(ledger, change)

        try:
            for moment in self._timeline.walk(passage.start, passage.stop, before=before):
                item = moment.item
                touches += watch.after(moment.ledger, item, moment.change)
                expected = item.seq + 1
                self.ledger = moment.ledger
        except KvLifeError as error:
            self.ledger = None
            self.troubles.append(f"seqs {expected or passage.start} to {passage.stop - 1}: {error}")
        self._advance(passage.stop - passage.start)
        return touches
