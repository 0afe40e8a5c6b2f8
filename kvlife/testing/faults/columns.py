"""Faults in the ledger's columns and books, and in a snapshot of them: what an audit recounts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvlife.events import Allocated, Released, StepDispatched
from kvlife.ledger import Ledger, PageState
from kvlife.testing.faults.fault import Faults, Injection, Kind, When
from kvlife.testing.faults.spot import Spot

FAULTS = Faults()
_COLUMNS, _AUDIT = Kind.COLUMNS, When.AUDIT
# The places of these faults: between any events, for which these stand.
ANYWHERE = (Allocated, Released, StepDispatched)

Edit = Callable[[Ledger], None]


def found_by_audit(invariant: str, edit: Edit) -> Injection:
    """An edit that the next audit must find, by the invariant."""

    def edited(ledger: Ledger) -> Ledger:
        edit(ledger)
        return ledger

    return Injection(edit=edited, invariant=invariant)


def _in_column(
    spot: Spot, name: str, page: int | None, value: int, invariant: str
) -> Injection | None:
    """One page of the base space gets another value in a column."""
    if page is None:
        return None
    space_idx = spot.base.space_idx

    def edit(ledger: Ledger) -> None:
        getattr(ledger.spaces[space_idx], name)[page] = value

    return found_by_audit(invariant, edit)


def _refs(spot: Spot, page: int | None, shift: int, invariant: str) -> Injection | None:
    if page is None:
        return None
    refs = int(spot.space(spot.base).refs[page]) + shift
    return _in_column(spot, "refs", page, refs, invariant)


@FAULTS.at("refs-one-up", _COLUMNS, "refs-balance", *ANYWHERE, when=_AUDIT)
def _refs_one_up(spot: Spot) -> Injection | None:
    """A cached page counts a reader that is not there."""
    return _refs(spot, spot.one(spot.pages_in(spot.base, PageState.CACHED)), 1, "refs-balance")


@FAULTS.at("refs-one-down", _COLUMNS, "refs-balance", *ANYWHERE, when=_AUDIT)
def _refs_one_down(spot: Spot) -> Injection | None:
    """A cached page counts a reader less than rows read it."""
    page = spot.one(spot.pages_in(spot.base, PageState.CACHED, locked=True))
    return _refs(spot, page, -1, "refs-balance")


@FAULTS.at("pins-one-up", _COLUMNS, "refs-balance", *ANYWHERE, when=_AUDIT)
def _pins_one_up(spot: Spot) -> Injection | None:
    """A page counts a pin that nobody holds."""
    page = spot.one(spot.pages_in(spot.base, PageState.CACHED))
    return _in_column(spot, "pins", page, 1, "refs-balance")


@FAULTS.at("key-lost", _COLUMNS, "index-agrees", *ANYWHERE, when=_AUDIT)
def _key_lost(spot: Spot) -> Injection | None:
    """A cached page loses its key."""
    return _in_column(
        spot, "key", spot.one(spot.pages_in(spot.base, PageState.CACHED)), 0, "index-agrees"
    )


@FAULTS.at("key-of-another", _COLUMNS, "index-agrees", *ANYWHERE, when=_AUDIT)
def _key_of_another(spot: Spot) -> Injection | None:
    """A cached page gets the key of another one."""
    cached = spot.pages_in(spot.base, PageState.CACHED).tolist()
    if len(cached) < 2 or spot.layout.duplicates:
        return None
    page, other = spot.rng.sample(cached, 2)
    key = int(spot.space(spot.base).key[other])
    return _in_column(spot, "key", page, key, "index-agrees")


@FAULTS.at("key-on-a-private-page", _COLUMNS, "index-agrees", *ANYWHERE, when=_AUDIT)
def _key_on_a_private_page(spot: Spot) -> Injection | None:
    """A page that was never published has a key."""
    page = spot.one(spot.pages_in(spot.base, PageState.PRIVATE))
    return _in_column(spot, "key", page, spot.rng.getrandbits(63) | 1, "index-agrees")


@FAULTS.at("state-unknown", _COLUMNS, "page-conservation", *ANYWHERE, when=_AUDIT)
def _state_unknown(spot: Spot) -> Injection | None:
    """The state of a FREE page is none of those that there are."""
    page = spot.one(spot.pages_in(spot.base, PageState.FREE))
    return _in_column(spot, "state", page, 9, "page-conservation")


@FAULTS.at("state-free-and-read", _COLUMNS, "index-agrees", *ANYWHERE, when=_AUDIT)
def _state_free_and_read(spot: Spot) -> Injection | None:
    """A cached page is FREE while it still has its key."""
    page = spot.one(spot.pages_in(spot.base, PageState.CACHED, locked=True))
    return _in_column(spot, "state", page, PageState.FREE, "index-agrees")


@FAULTS.at("state-private-and-free", _COLUMNS, "page-use-after-free", *ANYWHERE, when=_AUDIT)
def _state_private_and_free(spot: Spot) -> Injection | None:
    """A page is FREE that a row holds, all of its tokens committed."""
    entry = spot.committed()
    page = None if entry is None else entry[2]
    return _in_column(spot, "state", page, PageState.FREE, "page-use-after-free")


@FAULTS.at("state-quarantined-unpinned", _COLUMNS, "pinned-page-freed", *ANYWHERE, when=_AUDIT)
def _state_quarantined_unpinned(spot: Spot) -> Injection | None:
    """A page is in quarantine, and no pin will ever end it."""
    page = spot.one(spot.pages_in(spot.base, PageState.FREE))
    return _in_column(spot, "state", page, PageState.QUARANTINED, "pinned-page-freed")


@FAULTS.at("page-0-not-reserved", _COLUMNS, "reserved-untouched", *ANYWHERE, when=_AUDIT)
def _page_0_not_reserved(spot: Spot) -> Injection | None:
    """Page 0 is a page like all others."""
    return _in_column(spot, "state", 0, PageState.PRIVATE, "reserved-untouched")


def _free_list(edit: Callable[[Ledger, int], None], page: int | None) -> Injection | None:
    if page is None:
        return None
    return found_by_audit("page-conservation", lambda ledger: edit(ledger, page))


@FAULTS.at("free-list-names-a-page-twice", _COLUMNS, "page-conservation", *ANYWHERE, when=_AUDIT)
def _free_list_names_a_page_twice(spot: Spot) -> Injection | None:
    """The free list has a page twice, and another one not at all."""
    space_idx = spot.base.space_idx

    def edit(ledger: Ledger, page: int) -> None:
        free = ledger.spaces[space_idx].free
        other = int(free.pages()[0])
        free.slots[free.position[page]] = other if other != page else int(free.pages()[1])

    page = spot.one(spot.pages_in(spot.base, PageState.FREE))
    return _free_list(edit, page if spot.space(spot.base).free.num_free > 1 else None)


@FAULTS.at("free-list-loses-a-page", _COLUMNS, "page-conservation", *ANYWHERE, when=_AUDIT)
def _free_list_loses_a_page(spot: Spot) -> Injection | None:
    """A FREE page is in no free list, so that it is never handed out again."""
    space_idx = spot.base.space_idx

    def edit(ledger: Ledger, page: int) -> None:
        ledger.spaces[space_idx].free.remove(np.array([page], np.int32))

    return _free_list(edit, spot.one(spot.pages_in(spot.base, PageState.FREE)))


@FAULTS.at("free-list-has-a-page-in-use", _COLUMNS, "page-conservation", *ANYWHERE, when=_AUDIT)
def _free_list_has_a_page_in_use(spot: Spot) -> Injection | None:
    """The free list offers a page that a row holds."""
    space_idx = spot.base.space_idx

    def edit(ledger: Ledger, page: int) -> None:
        free = ledger.spaces[space_idx].free
        free.slots[free.position[free.pages()[0]]] = page

    page = spot.one(spot.pages_in(spot.base, PageState.PRIVATE))
    return _free_list(edit, page if spot.space(spot.base).free.num_free else None)


def _in_table(spot: Spot, row: int, idx: int, page: int, invariant: str) -> Injection:
    group = spot.base

    def edit(ledger: Ledger) -> None:
        ledger.tables[group.idx][row * group.table_width + idx] = page

    return found_by_audit(invariant, edit)


@FAULTS.at("table-entry-lost", _COLUMNS, "allocated-covers-pages", *ANYWHERE, when=_AUDIT)
def _table_entry_lost(spot: Spot) -> Injection | None:
    """A row's table has no page where its lengths ask for one."""
    entry = spot.committed()
    if entry is None:
        return None
    row, idx, _page = entry
    return _in_table(spot, row, idx, 0, "allocated-covers-pages")


@FAULTS.at("table-entry-of-another-row", _COLUMNS, "refs-balance", *ANYWHERE, when=_AUDIT)
def _table_entry_of_another_row(spot: Spot) -> Injection | None:
    """A row's table names the page of another row in place of its own."""
    entry = spot.committed()
    if entry is None:
        return None
    row, idx, _page = entry
    other = spot.other_row(row)
    page = None if other is None else spot.one(spot.own(other, spot.base).tolist())
    if page is None or page in spot.own(row, spot.base):
        return None
    return _in_table(spot, row, idx, page, "refs-balance")


@FAULTS.at("page-in-two-rows", _COLUMNS, "page-aliased", *ANYWHERE, when=_AUDIT)
def _page_in_two_rows(spot: Spot) -> Injection | None:
    """A page is in the tables of two rows, and counts both, though no fork made it theirs."""
    entry = spot.committed()
    if entry is None:
        return None
    row, idx, old = entry
    another = spot.committed(row)
    if another is None:
        return None
    group, page = spot.base, another[2]

    def edit(ledger: Ledger) -> None:
        ledger.tables[group.idx][row * group.table_width + idx] = page
        space = ledger.spaces[group.space_idx]
        space.refs[page] += 1
        space.refs[old] = 0
        space.set_free(np.array([old], np.int32))

    return found_by_audit("page-aliased", edit)


@FAULTS.at("refs-up-under-a-write", _COLUMNS, "write-exclusive", Allocated, when=When.EVENT)
def _refs_up_under_a_write(spot: Spot) -> Injection | None:
    """The page that a row goes on writing counts another reader."""
    return _under_a_write(spot, "refs", 2)


@FAULTS.at("state-cached-under-a-write", _COLUMNS, "write-exclusive", Allocated, when=When.EVENT)
def _state_cached_under_a_write(spot: Spot) -> Injection | None:
    """The page that a row goes on writing is in the cache."""
    return _under_a_write(spot, "state", PageState.CACHED)


def _under_a_write(spot: Spot, name: str, value: int) -> Injection | None:
    """The page of a row's next token, which it has in part, changes behind the row's back."""
    rows, size = spot.ledger.rows, spot.base.page_size
    row = spot.one(
        row
        for row in spot.event.rows.tolist()
        if rows.committed[row] % size and rows.committed[row] >= rows.protected[row]
    )
    if row is None:
        return None
    page = int(spot.ledger.pages_of(row, spot.base.idx)[rows.committed[row] // size])
    space_idx = spot.base.space_idx

    def edit(ledger: Ledger) -> Ledger:
        getattr(ledger.spaces[space_idx], name)[page] = value
        return ledger

    return Injection(events=(spot.event,), edit=edit, invariant="write-exclusive")


@FAULTS.at("pin-lost", _COLUMNS, "refs-balance", *ANYWHERE, when=_AUDIT)
def _pin_lost(spot: Spot) -> Injection | None:
    """A pin is in no book any more, and its page still counts it."""
    page = spot.one(spot.pages_in(spot.base, PageState.CACHED))
    if page is None:
        return None
    pinned = spot.pinned([page])

    def edit(ledger: Ledger) -> None:
        ledger.apply(pinned, ledger.next_seq)
        del ledger.pins[pinned.pin_id]

    return found_by_audit("refs-balance", edit)
