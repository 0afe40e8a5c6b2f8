"""Faults in what is published, under which key, and in what a duplicate is rebound to."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Event,
    Protected,
    SessionSaved,
    StepDispatched,
    StepSettled,
    WindowEvicted,
)
from kvlife.events.arrays import NO_LINKS, ints
from kvlife.ledger import PageState, RowState
from kvlife.testing.faults.fault import Faults, Injection, Kind
from kvlife.testing.faults.spot import Spot, changed, links, replaced

FAULTS = Faults()
_STREAM, _DECISION = Kind.STREAM, Kind.DECISION

U64 = npt.NDArray[np.uint64]


def new_keys(spot: Spot, num: int) -> U64:
    """Keys that no page has."""
    keys = np.array([spot.rng.getrandbits(63) | 1 for _ in range(num)], np.uint64)
    keys.setflags(write=False)
    return keys


def _given(spot: Spot) -> tuple[int, list[int]] | None:
    """A group that is given keys, and the places of those whose pages are the row's own."""
    event = spot.event
    for idx in spot.rng.sample(range(len(event.keys)), len(event.keys)):
        size = spot.layout.groups[idx].page_size
        low = int(spot.ledger.rows.protected[event.row]) // size
        bound = event.rebinds[event.rebinds[:, 0] == idx][:, 1] - low
        places = np.setdiff1d(np.flatnonzero(event.keys[idx]), bound).tolist()
        if places:
            return idx, places
    return None


def _with_keys(spot: Spot, idx: int, keys: U64) -> Injection:
    wrong = attrs.evolve(spot.event, keys=replaced(spot.event.keys, idx, keys))
    return Injection(events=(wrong,), invariant="index-agrees")


@FAULTS.at("key-of-another-page", _DECISION, "index-agrees", Protected)
def _key_of_another_page(spot: Spot) -> Injection | None:
    """A page is published under a key that a cached page has: the hash leaves something out."""
    given = _given(spot)
    if given is None:
        return None
    idx, places = given
    group = spot.layout.groups[idx]
    page = spot.one(spot.pages_in(group, PageState.CACHED))
    if page is None:
        return None
    key = int(spot.space(group).key[page])
    return _with_keys(spot, idx, changed(spot.event.keys[idx], spot.rng.choice(places), key))


@FAULTS.at("key-given-twice", _STREAM, "index-agrees", Protected)
def _key_given_twice(spot: Spot) -> Injection | None:
    """Two pages of one publish get one key."""
    given = _given(spot)
    if given is None or len(given[1]) < 2:
        return None
    idx, places = given
    first, second = spot.rng.sample(places, 2)
    keys = spot.event.keys[idx]
    return _with_keys(spot, idx, changed(keys, first, int(keys[second])))


@FAULTS.at("key-missing", _STREAM, "index-agrees", Protected)
def _key_missing(spot: Spot) -> Injection | None:
    """A publish has one key less than pages."""
    given = _given(spot)
    if given is None:
        return None
    idx, places = given
    keys = spot.event.keys[idx]
    # Without the key of a rebind that would be to blame first.
    return _with_keys(spot, idx, keys[:-1]) if places[-1] == len(keys) - 1 else None


@FAULTS.at("duplicate-not-rebound", _DECISION, "index-agrees", Protected)
def _duplicate_not_rebound(spot: Spot) -> Injection | None:
    """The cache has these tokens on another page, and the row publishes its own beside it."""
    if not spot.event.rebinds.size:
        return None
    wrong = attrs.evolve(spot.event, rebinds=NO_LINKS)
    return Injection(events=(wrong,), invariant="index-agrees")


def _rebinding(spot: Spot, column: int, page: int | None, invariant: str) -> Injection | None:
    if page is None or not spot.event.rebinds.size:
        return None
    rebinds = spot.event.rebinds.copy()
    rebinds[spot.rng.randrange(len(rebinds)), column] = page
    wrong = attrs.evolve(spot.event, rebinds=links(rebinds.tolist()))
    return Injection(events=(wrong,), invariant=invariant)


def _base_rebinds(spot: Spot) -> bool:
    return bool((spot.event.rebinds[:, 0] == spot.layout.base).all())


@FAULTS.at("rebound-without-the-row", _DECISION, "allocated-covers-pages", Protected)
def _rebound_without_the_row(spot: Spot) -> Injection | None:
    """The duplicate that is let go is another page of the row, which goes on referencing it."""
    event = spot.event
    if not event.rebinds.size or not _base_rebinds(spot):
        return None
    ours = spot.own(event.row, spot.base)
    refs = spot.space(spot.base).refs
    page = spot.one(
        page for page in ours.tolist() if page not in event.rebinds[:, 2] and refs[page] == 1
    )
    return _rebinding(spot, 2, page, "allocated-covers-pages")


@FAULTS.at("rebound-to-other-content", _DECISION, "allocated-covers-pages", Protected)
def _rebound_to_other_content(spot: Spot) -> Injection | None:
    """A duplicate is rebound to a cached page of another key."""
    if not _base_rebinds(spot):
        return None
    cached = spot.pages_in(spot.base, PageState.CACHED)
    page = spot.one(np.setdiff1d(cached, spot.event.rebinds[:, 3]))
    return _rebinding(spot, 3, page, "allocated-covers-pages")


@FAULTS.at("rebound-to-a-free-page", _DECISION, "allocated-covers-pages", Protected)
def _rebound_to_a_free_page(spot: Spot) -> Injection | None:
    """A duplicate is rebound to a page that was evicted meanwhile."""
    if not _base_rebinds(spot):
        return None
    page = spot.one(spot.pages_in(spot.base, PageState.FREE))
    return _rebinding(spot, 3, page, "allocated-covers-pages")


@FAULTS.at("rebound-to-page-0", _STREAM, "reserved-untouched", Protected)
def _rebound_to_page_0(spot: Spot) -> Injection | None:
    """A duplicate is rebound to the page of padded writes."""
    return _rebinding(spot, 3, 0, "reserved-untouched")


@FAULTS.at("rebound-lets-a-free-page-go", _STREAM, "page-double-free", Protected)
def _rebound_lets_a_free_page_go(spot: Spot) -> Injection | None:
    """The duplicate that is let go was let go before."""
    if not _base_rebinds(spot):
        return None
    page = spot.one(spot.pages_in(spot.base, PageState.FREE))
    return _rebinding(spot, 2, page, "page-double-free")


@FAULTS.at("published-under-a-write", _DECISION, "in-flight-fence", Protected)
def _published_under_a_write(spot: Spot) -> Injection | None:
    """A page is published that a transfer still writes."""
    event, group = spot.event, spot.base
    low = int(spot.ledger.rows.protected[event.row]) // group.page_size
    pages = spot.ledger.pages_of(event.row, group.idx)[low:]
    page = spot.one(pages[: event.protected_len // group.page_size - low])
    if not page:
        return None
    pinned = spot.pinned([page], writes=True)
    return Injection(events=(pinned, event), invariant="in-flight-fence")


def _in_a_later_turn(spot: Spot, row: int) -> bool:
    session = spot.ledger.rows.session[row]
    return session is not None and spot.ledger.sessions[session].num_turns > 0


def _publishing(spot: Spot, row: int, length: int) -> Injection | None:
    """A row publishes up to a length, under new keys; sound but for its session."""
    rows = spot.ledger.rows
    old = int(rows.protected[row])
    if length <= old or rows.state[row] != RowState.HELD:
        return None
    keys = []
    for group in spot.layout.groups:
        low, high = old // group.page_size, length // group.page_size
        pages = spot.ledger.pages_of(row, group.idx)[low:high]
        given = np.where(pages != 0, new_keys(spot, high - low), np.uint64(0))
        keys.append(given.astype(np.uint64))
    wrong = Protected(row, length, tuple(keys), NO_LINKS)
    return Injection(events=(wrong,), invariant="session-prefix-fixed")


@FAULTS.at("session-published-in-a-later-turn", _DECISION, "session-prefix-fixed", Committed)
def _session_published_in_a_later_turn(spot: Spot) -> Injection | None:
    """A session's row publishes another page in its second turn, as a request's row does."""
    rows, align = spot.ledger.rows, spot.layout.align
    row = spot.one(row for row in spot.ledger.requests.values() if _in_a_later_turn(spot, row))
    if row is None:
        return None
    length = int(rows.protected[row]) + align
    return _publishing(spot, row, length) if length <= rows.committed[row] else None


@FAULTS.at("session-published-at-its-save", _DECISION, "session-prefix-fixed", SessionSaved)
def _session_published_at_its_save(spot: Spot) -> Injection | None:
    """The save of a later turn publishes all that is kept, as that of the first one does."""
    row, align = spot.event.row, spot.layout.align
    if not _in_a_later_turn(spot, row):
        return None
    return _publishing(spot, row, int(spot.ledger.rows.committed[row]) // align * align)


def _unwritten_hit(spot: Spot) -> tuple[tuple[Event, ...], int, int] | None:
    """Two requests: one publishes what it is yet to write, the other hits it. Both are new."""
    align = spot.layout.align
    free_rows = [row for row in spot.rows(RowState.FREE) if row != getattr(spot.event, "row", 0)]
    taken = [spot.free(group, align // group.page_size) for group in spot.layout.groups]
    if not spot.layout.scheduled or len(free_rows) < 2 or None in taken or spot.shares_spaces:
        return None
    writer, reader = free_rows[:2]
    pages = tuple(ints(some or ()) for some in taken)
    keys = tuple(new_keys(spot, len(some)) for some in pages)
    none = (0,) * len(spot.layout.window_groups)
    events = (
        Admitted("writer", writer, 0, align, 0, 0, none, spot.ledger.no_pages),
        Allocated(ints([writer]), ints([align]), pages),
        Protected(writer, align, keys, NO_LINKS),
        Admitted("reader", reader, 0, 2 * align, align, 0, none, pages),
    )
    return events, writer, reader


@FAULTS.at("read-before-it-is-written", _DECISION, "written-before-shared", StepDispatched)
def _read_before_it_is_written(spot: Spot) -> Injection | None:
    """A page hashed when it was scheduled is read by a step, and its writer is in none."""
    return _reading(spot)


def _reading(spot: Spot, *, after_the_writer: bool = False) -> Injection | None:
    made = _unwritten_hit(spot)
    if made is None:
        return None
    events, writer, reader = made
    step = spot.event.step
    if after_the_writer:
        if spot.ledger.steps:
            return None
        ran = (
            StepDispatched(step, ints([writer])),
            StepSettled(step, ints([]), spot.ledger.no_pages),
        )
        events, step = (*events, *ran), step + 1
    wrong = StepDispatched(step, ints([reader]))
    return Injection(events=(*events, wrong), invariant="written-before-shared")


@FAULTS.at("published-and-never-written", _DECISION, "written-before-shared", StepDispatched)
def _published_and_never_written(spot: Spot) -> Injection | None:
    """A page hashed when it was scheduled is read; its writer's step settled without a commit."""
    return _reading(spot, after_the_writer=True)


@FAULTS.at("published-behind-the-window", _DECISION, "window-cursor", Protected, WindowEvicted)
def _published_behind_the_window(spot: Spot) -> Injection | None:
    """A window page is published that the cursor has passed."""
    rows = spot.ledger.rows
    row = spot.event.row if isinstance(spot.event, Protected) else int(spot.event.rows[0])
    old, align = int(rows.protected[row]), spot.layout.align
    length = int(rows.committed[row]) // align * align
    if _in_a_later_turn(spot, row) or length <= old or rows.state[row] != RowState.HELD:
        return None
    keys, passed = [], False
    for group in spot.layout.groups:
        low, high = old // group.page_size, length // group.page_size
        pages = spot.ledger.pages_of(row, group.idx)[low:high]
        passed |= group.window is not None and bool((pages == 0).any())
        keys.append(new_keys(spot, high - low))
    if not passed:
        return None
    return Injection(
        events=(Protected(row, length, tuple(keys), NO_LINKS),), invariant="window-cursor"
    )
