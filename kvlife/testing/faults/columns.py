"""Faults in the ledger's columns and books, and in a snapshot of them: what an audit recounts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from kvlife.events import Allocated, Released, StepDispatched
from kvlife.ledger import FrozenState, Ledger, PageState, RowState, state_digest
from kvlife.testing.faults.fault import Faults, Injection, Kind, When
from kvlife.testing.faults.spot import Spot

FAULTS = Faults()
_COLUMNS, _AUDIT = Kind.COLUMNS, When.AUDIT
# The places of these faults: between any events, for which these stand.
_ANY = (Allocated, Released, StepDispatched)

Edit = Callable[[Ledger], None]
Arrays = dict[str, npt.NDArray[Any]]  # Any: columns of every dtype


def _found_by_audit(invariant: str, edit: Edit) -> Injection:
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

    return _found_by_audit(invariant, edit)


def _refs(spot: Spot, page: int | None, shift: int, invariant: str) -> Injection | None:
    if page is None:
        return None
    refs = int(spot.space(spot.base).refs[page]) + shift
    return _in_column(spot, "refs", page, refs, invariant)


@FAULTS.at("refs-one-up", _COLUMNS, "refs-balance", *_ANY, when=_AUDIT)
def _refs_one_up(spot: Spot) -> Injection | None:
    """A cached page counts a reader that is not there."""
    return _refs(spot, spot.one(spot.pages_in(spot.base, PageState.CACHED)), 1, "refs-balance")


@FAULTS.at("refs-one-down", _COLUMNS, "refs-balance", *_ANY, when=_AUDIT)
def _refs_one_down(spot: Spot) -> Injection | None:
    """A cached page counts a reader less than rows read it."""
    page = spot.one(spot.pages_in(spot.base, PageState.CACHED, locked=True))
    return _refs(spot, page, -1, "refs-balance")


@FAULTS.at("pins-one-up", _COLUMNS, "refs-balance", *_ANY, when=_AUDIT)
def _pins_one_up(spot: Spot) -> Injection | None:
    """A page counts a pin that nobody holds."""
    page = spot.one(spot.pages_in(spot.base, PageState.CACHED))
    return _in_column(spot, "pins", page, 1, "refs-balance")


@FAULTS.at("key-lost", _COLUMNS, "index-agrees", *_ANY, when=_AUDIT)
def _key_lost(spot: Spot) -> Injection | None:
    """A cached page loses its key."""
    return _in_column(
        spot, "key", spot.one(spot.pages_in(spot.base, PageState.CACHED)), 0, "index-agrees"
    )


@FAULTS.at("key-of-another", _COLUMNS, "index-agrees", *_ANY, when=_AUDIT)
def _key_of_another(spot: Spot) -> Injection | None:
    """A cached page gets the key of another one."""
    cached = spot.pages_in(spot.base, PageState.CACHED).tolist()
    if len(cached) < 2 or spot.layout.duplicates:
        return None
    page, other = spot.rng.sample(cached, 2)
    key = int(spot.space(spot.base).key[other])
    return _in_column(spot, "key", page, key, "index-agrees")


@FAULTS.at("key-on-a-private-page", _COLUMNS, "index-agrees", *_ANY, when=_AUDIT)
def _key_on_a_private_page(spot: Spot) -> Injection | None:
    """A page that was never published has a key."""
    page = spot.one(spot.pages_in(spot.base, PageState.PRIVATE))
    return _in_column(spot, "key", page, spot.rng.getrandbits(63) | 1, "index-agrees")


@FAULTS.at("state-unknown", _COLUMNS, "page-conservation", *_ANY, when=_AUDIT)
def _state_unknown(spot: Spot) -> Injection | None:
    """The state of a FREE page is none of those that there are."""
    page = spot.one(spot.pages_in(spot.base, PageState.FREE))
    return _in_column(spot, "state", page, 9, "page-conservation")


@FAULTS.at("state-free-and-read", _COLUMNS, "index-agrees", *_ANY, when=_AUDIT)
def _state_free_and_read(spot: Spot) -> Injection | None:
    """A cached page is FREE while it still has its key."""
    page = spot.one(spot.pages_in(spot.base, PageState.CACHED, locked=True))
    return _in_column(spot, "state", page, PageState.FREE, "index-agrees")


@FAULTS.at("state-private-and-free", _COLUMNS, "page-use-after-free", *_ANY, when=_AUDIT)
def _state_private_and_free(spot: Spot) -> Injection | None:
    """A page is FREE that a row holds, all of its tokens committed."""
    ledger, size = spot.ledger, spot.base.page_size
    page = spot.one(
        page
        for row in spot.rows(RowState.HELD)
        for page in ledger.pages_of(row, spot.base.idx)[
            : ledger.rows.committed[row] // size
        ].tolist()
        if page and spot.space(spot.base).state[page] == PageState.PRIVATE
    )
    return _in_column(spot, "state", page, PageState.FREE, "page-use-after-free")


@FAULTS.at("state-quarantined-unpinned", _COLUMNS, "pinned-page-freed", *_ANY, when=_AUDIT)
def _state_quarantined_unpinned(spot: Spot) -> Injection | None:
    """A page is in quarantine, and no pin will ever end it."""
    page = spot.one(spot.pages_in(spot.base, PageState.FREE))
    return _in_column(spot, "state", page, PageState.QUARANTINED, "pinned-page-freed")


@FAULTS.at("page-0-not-reserved", _COLUMNS, "reserved-untouched", *_ANY, when=_AUDIT)
def _page_0_not_reserved(spot: Spot) -> Injection | None:
    """Page 0 is a page like all others."""
    return _in_column(spot, "state", 0, PageState.PRIVATE, "reserved-untouched")


def _free_list(edit: Callable[[Ledger, int], None], page: int | None) -> Injection | None:
    if page is None:
        return None
    return _found_by_audit("page-conservation", lambda ledger: edit(ledger, page))


@FAULTS.at("free-list-names-a-page-twice", _COLUMNS, "page-conservation", *_ANY, when=_AUDIT)
def _free_list_names_a_page_twice(spot: Spot) -> Injection | None:
    """The free list has a page twice, and another one not at all."""
    space_idx = spot.base.space_idx

    def edit(ledger: Ledger, page: int) -> None:
        free = ledger.spaces[space_idx].free
        other = int(free.pages()[0])
        free.slots[free.position[page]] = other if other != page else int(free.pages()[1])

    page = spot.one(spot.pages_in(spot.base, PageState.FREE))
    return _free_list(edit, page if spot.space(spot.base).free.num_free > 1 else None)


@FAULTS.at("free-list-loses-a-page", _COLUMNS, "page-conservation", *_ANY, when=_AUDIT)
def _free_list_loses_a_page(spot: Spot) -> Injection | None:
    """A FREE page is in no free list, so that it is never handed out again."""
    space_idx = spot.base.space_idx

    def edit(ledger: Ledger, page: int) -> None:
        ledger.spaces[space_idx].free.remove(np.array([page], np.int32))

    return _free_list(edit, spot.one(spot.pages_in(spot.base, PageState.FREE)))


@FAULTS.at("free-list-has-a-page-in-use", _COLUMNS, "page-conservation", *_ANY, when=_AUDIT)
def _free_list_has_a_page_in_use(spot: Spot) -> Injection | None:
    """The free list offers a page that a row holds."""
    space_idx = spot.base.space_idx

    def edit(ledger: Ledger, page: int) -> None:
        free = ledger.spaces[space_idx].free
        free.slots[free.position[free.pages()[0]]] = page

    page = spot.one(spot.pages_in(spot.base, PageState.PRIVATE))
    return _free_list(edit, page if spot.space(spot.base).free.num_free else None)


def _entry(spot: Spot, *, committed: bool) -> tuple[int, int] | None:
    """A row, and the index of a PRIVATE page in its table, committed as a whole or not."""
    ledger, size = spot.ledger, spot.base.page_size
    found = [
        (row, idx)
        for row in spot.rows(RowState.HELD)
        for idx, page in enumerate(ledger.pages_of(row, spot.base.idx).tolist())
        if page
        and spot.space(spot.base).state[page] == PageState.PRIVATE
        and ((idx + 1) * size <= ledger.rows.committed[row]) == committed
    ]
    return spot.one(found)


def _in_table(spot: Spot, row: int, idx: int, page: int, invariant: str) -> Injection:
    group = spot.base

    def edit(ledger: Ledger) -> None:
        ledger.tables[group.idx][row * group.table_width + idx] = page

    return _found_by_audit(invariant, edit)


@FAULTS.at("table-entry-lost", _COLUMNS, "allocated-covers-pages", *_ANY, when=_AUDIT)
def _table_entry_lost(spot: Spot) -> Injection | None:
    """A row's table has no page where its lengths ask for one."""
    entry = _entry(spot, committed=True)
    return None if entry is None else _in_table(spot, *entry, 0, "allocated-covers-pages")


@FAULTS.at("table-entry-of-another-row", _COLUMNS, "refs-balance", *_ANY, when=_AUDIT)
def _table_entry_of_another_row(spot: Spot) -> Injection | None:
    """A row's table names the page of another row in place of its own."""
    entry = _entry(spot, committed=True)
    other = None if entry is None else spot.other_row(entry[0])
    page = None if other is None else spot.one(spot.own(other, spot.base))
    if entry is None or page is None or page in spot.own(entry[0], spot.base):
        return None
    return _in_table(spot, *entry, page, "refs-balance")


@FAULTS.at("page-in-two-rows", _COLUMNS, "page-aliased", *_ANY, when=_AUDIT)
def _page_in_two_rows(spot: Spot) -> Injection | None:
    """A page is in the tables of two rows, and counts both, though no fork made it theirs."""
    entry = _entry(spot, committed=True)
    if entry is None:
        return None
    row, idx = entry
    group, space_idx = spot.base, spot.base.space_idx
    size, committed = group.page_size, spot.ledger.rows.committed
    old = int(spot.ledger.pages_of(row, group.idx)[idx])
    other = spot.one(
        int(page)
        for held in spot.rows(RowState.HELD)
        if held != row
        for page in spot.ledger.pages_of(held, group.idx)[: committed[held] // size]
        if page and spot.space(group).state[page] == PageState.PRIVATE
    )
    if other is None:
        return None

    def edit(ledger: Ledger) -> None:
        ledger.tables[group.idx][row * group.table_width + idx] = other
        space = ledger.spaces[space_idx]
        space.refs[other] += 1
        space.refs[old] = 0
        space.set_free(np.array([old], np.int32))

    return _found_by_audit("page-aliased", edit)


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


def _in_rows(name: str, row: int | None, value: int, invariant: str) -> Injection | None:
    if row is None:
        return None

    def edit(ledger: Ledger) -> None:
        getattr(ledger.rows, name)[row] = value

    return _found_by_audit(invariant, edit)


@FAULTS.at("committed-column-up", _COLUMNS, "ladder-order", *_ANY, when=_AUDIT)
def _committed_column_up(spot: Spot) -> Injection | None:
    """A row is committed beyond its allocated length."""
    row = spot.one(spot.rows(RowState.HELD))
    length = 0 if row is None else int(spot.ledger.rows.allocated[row]) + 1
    return _in_rows("committed", row, length, "ladder-order")


@FAULTS.at("protected-column-off", _COLUMNS, "protected-aligned", *_ANY, when=_AUDIT)
def _protected_column_off(spot: Spot) -> Injection | None:
    """A row has published a token less than whole pages."""
    rows, align = spot.ledger.rows, spot.layout.align
    row = spot.one(row for row in spot.rows(RowState.HELD) if rows.protected[row] and align > 1)
    length = 0 if row is None else int(rows.protected[row]) - 1
    return _in_rows("protected", row, length, "protected-aligned")


@FAULTS.at("settled-column-down", _COLUMNS, "settled-bound", *_ANY, when=_AUDIT)
def _settled_column_down(spot: Spot) -> Injection | None:
    """A row is committed beyond what steps have settled."""
    rows = spot.ledger.rows
    row = spot.one(row for row in spot.rows(RowState.HELD) if rows.committed[row] > 0)
    length = 0 if row is None else int(rows.committed[row]) - 1
    return _in_rows("settled", row, length, "settled-bound")


@FAULTS.at("in-flight-one-up", _COLUMNS, "in-flight-fence", *_ANY, when=_AUDIT)
def _in_flight_one_up(spot: Spot) -> Injection | None:
    """A row counts a step in flight that was never dispatched."""
    row = spot.one(spot.rows(RowState.HELD))
    count = 0 if row is None else int(spot.ledger.rows.in_flight[row]) + 1
    return _in_rows("in_flight", row, count, "in-flight-fence")


@FAULTS.at("row-state-unknown", _COLUMNS, "row-conservation", *_ANY, when=_AUDIT)
def _row_state_unknown(spot: Spot) -> Injection | None:
    """A FREE row is in no state that there is."""
    return _in_rows("state", spot.one(spot.rows(RowState.FREE)), 7, "row-conservation")


@FAULTS.at("free-row-with-tokens", _COLUMNS, "row-conservation", *_ANY, when=_AUDIT)
def _free_row_with_tokens(spot: Spot) -> Injection | None:
    """A FREE row still has a length."""
    return _in_rows("allocated", spot.one(spot.rows(RowState.FREE)), 1, "row-conservation")


@FAULTS.at("cursor-column-off", _COLUMNS, "window-cursor", *_ANY, when=_AUDIT)
def _cursor_column_off(spot: Spot) -> Injection | None:
    """A window's cursor stands inside a page."""
    rows = spot.ledger.rows
    for group in spot.layout.window_groups:
        window_idx = group.window_idx or 0
        row = spot.one(
            row
            for row in spot.rows(RowState.HELD)
            if rows.cursors[window_idx, row] < rows.allocated[row] - group.page_size
        )
        if row is None or group.page_size == 1:
            continue
        return _found_by_audit("window-cursor", partial(_move_cursor, window_idx, row))
    return None


def _move_cursor(window_idx: int, row: int, ledger: Ledger) -> None:
    ledger.rows.cursors[window_idx, row] += 1


@FAULTS.at("holder-lost", _COLUMNS, "row-single-holder", *_ANY, when=_AUDIT)
def _holder_lost(spot: Spot) -> Injection | None:
    """A request is in no book any more, and its row is still held for it."""
    sessions = spot.ledger.rows.session
    rid = spot.one(rid for rid, row in spot.ledger.requests.items() if sessions[row] is None)
    if rid is None:
        return None

    def edit(ledger: Ledger) -> None:
        del ledger.requests[rid]

    return _found_by_audit("row-single-holder", edit)


@FAULTS.at("holder-on-another-row", _COLUMNS, "row-single-holder", *_ANY, when=_AUDIT)
def _holder_on_another_row(spot: Spot) -> Injection | None:
    """A request's row is one that another request holds."""
    rid = spot.one(spot.ledger.requests)
    other = None if rid is None else spot.other_row(spot.ledger.requests[rid])
    if rid is None or other is None:
        return None

    def edit(ledger: Ledger) -> None:
        ledger.requests[rid] = other

    return _found_by_audit("row-single-holder", edit)


@FAULTS.at("pin-lost", _COLUMNS, "refs-balance", *_ANY, when=_AUDIT)
def _pin_lost(spot: Spot) -> Injection | None:
    """A pin is in no book any more, and its page still counts it."""
    page = spot.one(spot.pages_in(spot.base, PageState.CACHED))
    if page is None:
        return None
    pinned = spot.pinned([page])

    def edit(ledger: Ledger) -> None:
        ledger.apply(pinned, ledger.next_seq)
        del ledger.pins[pinned.pin_id]

    return _found_by_audit("refs-balance", edit)


def _lying(change: Callable[[Arrays], None], invariant: str) -> Injection:
    """A state that is restored from a snapshot which does not hold what it was taken of."""

    def restored(ledger: Ledger) -> Ledger:
        snapshot = ledger.snapshot()
        state = snapshot.freeze()
        snapshot.release()
        arrays = {name: array.copy() for name, array in state.arrays.items()}
        change(arrays)
        # One that was damaged has another digest than it names, and is refused; this one lies.
        lie = FrozenState(arrays, state.meta, state_digest(arrays, state.meta))
        return Ledger.restore(ledger.config, lie)

    return Injection(edit=restored, invariant=invariant)


@FAULTS.at("snapshot-lies-about-refs", _COLUMNS, "refs-balance", *_ANY, when=_AUDIT)
def _snapshot_lies_about_refs(spot: Spot) -> Injection | None:
    """A state is restored in which a cached page has a reader more than there are."""
    space = spot.base.space_idx
    live = np.flatnonzero(
        (spot.space(spot.base).state != PageState.FREE)
        & (spot.space(spot.base).state != PageState.RESERVED)
    )
    at = spot.where(spot.space(spot.base).state[live] == PageState.CACHED)
    if at is None:
        return None

    def change(arrays: Arrays) -> None:
        arrays[f"page.{space}.refs"][at] += 1

    return _lying(change, "refs-balance")


@FAULTS.at("snapshot-lies-about-a-length", _COLUMNS, "ladder-order", *_ANY, when=_AUDIT)
def _snapshot_lies_about_a_length(spot: Spot) -> Injection | None:
    """A state is restored in which a row is committed beyond its allocated length."""
    used = spot.ledger.rows.in_use()
    at = spot.one(range(used.size))
    if at is None:
        return None

    def change(arrays: Arrays) -> None:
        arrays["row.committed"][at] = arrays["row.allocated"][at] + 1

    return _lying(change, "ladder-order")
