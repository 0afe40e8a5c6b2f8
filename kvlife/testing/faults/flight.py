"""Faults around what is in flight: steps, pins, and rows that drain."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Event,
    Evicted,
    Marked,
    Protected,
    Released,
    Resized,
    Resumed,
    Retracted,
    SessionClosed,
    StepDispatched,
    StepSettled,
    Unpinned,
)
from kvlife.events.arrays import ints
from kvlife.ledger import Ledger, PageSpace, PageState, RowState
from kvlife.testing.faults.fault import Faults, Injection, Kind, When
from kvlife.testing.faults.spot import Spot

I32 = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]

FAULTS = Faults()
_STREAM, _DECISION = Kind.STREAM, Kind.DECISION


@FAULTS.at("settle-doubled", _STREAM, "in-flight-fence", StepSettled)
def _settle_doubled(spot: Spot) -> Injection:
    """The result of a step is told twice."""
    again = StepSettled(spot.event.step, ints([]), spot.ledger.no_pages)
    return Injection(events=(spot.event, again), invariant="in-flight-fence")


@FAULTS.at("settle-out-of-order", _STREAM, "in-flight-fence", StepSettled)
def _settle_out_of_order(spot: Spot) -> Injection | None:
    """The result of a step comes before that of the step dispatched before it."""
    step = spot.one(step for step in spot.ledger.steps if step != spot.event.step)
    if step is None:
        return None
    wrong = StepSettled(step, ints([]), spot.ledger.no_pages)
    return Injection(events=(wrong,), invariant="in-flight-fence")


@FAULTS.at(
    "settle-lost",
    _STREAM,
    (
        "settled-bound",
        "in-flight-fence",
        "row-single-holder",
        "page-double-alloc",
        "pinned-page-freed",
        "evicted-while-locked",
        "idle-no-leak",
    ),
    StepSettled,
    when=When.LATER,
)
def _settle_lost(spot: Spot) -> Injection | None:
    """The result of a step is never told: its rows commit unconfirmed, or the next one settles."""
    lost = spot.event.step

    def later(ledger: Ledger, event: Event) -> str | None:
        if isinstance(event, StepSettled) and event.step != lost:
            return "in-flight-fence"
        if isinstance(event, Marked) and event.idle:
            return "idle-no-leak"
        rows = ledger.rows
        if isinstance(event, Committed):
            bound = np.minimum(rows.settled[event.rows], rows.allocated[event.rows])
            return "settled-bound" if (event.committed_len > bound).any() else None
        return _takes_what_is_kept(ledger, event)

    return Injection(later=later)


def _takes_what_is_kept(ledger: Ledger, event: Event) -> str | None:
    """What an event breaks that frees, binds, takes or evicts what an open step still keeps."""
    rows = ledger.rows
    match event:
        case Released(row=int(row)) | Retracted(row=int(row)) | SessionClosed(row=int(row)):
            freed = rows.in_flight[row] > 0 and any(map(len, event.pages))
            return "in-flight-fence" if freed else None
        case Admitted() | Resumed() if rows.state[event.row] != RowState.FREE:
            return "row-single-holder"
        case Allocated() if _any_page(ledger, event, _is_owned):
            return "page-double-alloc"
        case Allocated() if _any_page(ledger, event, _is_locked):
            return "pinned-page-freed"
        case Evicted() if _any_page(ledger, event, _is_locked):
            return "evicted-while-locked"
        case _:
            return None


def _any_page(
    ledger: Ledger, event: Allocated | Evicted, wrong: Callable[[PageSpace, I32], BoolArray]
) -> bool:
    return any(
        wrong(ledger.spaces[group.space_idx], pages).any()
        for group, pages in zip(ledger.layout.groups, event.pages, strict=True)
    )


def _is_owned(space: PageSpace, pages: I32) -> BoolArray:
    return np.isin(space.state[pages], (PageState.PRIVATE, PageState.CACHED))


def _is_locked(space: PageSpace, pages: I32) -> BoolArray:
    return (space.refs[pages] > 0) | (space.pins[pages] > 0)


@FAULTS.at("step-number-again", _STREAM, "in-flight-fence", StepDispatched)
def _step_number_again(spot: Spot) -> Injection | None:
    """A step is dispatched under the number of one that is in flight."""
    step = spot.one(spot.ledger.steps)
    if step is None:
        return None
    return Injection(events=(attrs.evolve(spot.event, step=step),), invariant="in-flight-fence")


@FAULTS.at("drained-row-forgotten", _STREAM, "in-flight-fence", StepSettled)
def _drained_row_forgotten(spot: Spot) -> Injection | None:
    """The last step of a row that drains settles, and the row is not freed."""
    if not spot.event.drained.size:
        return None
    rows = np.delete(spot.event.drained, spot.rng.randrange(spot.event.drained.size))
    wrong = spot.naming_gone(attrs.evolve(spot.event, drained=ints(rows.tolist())))
    return Injection(events=(wrong,), invariant="in-flight-fence")


@FAULTS.at("drained-while-held", _DECISION, "in-flight-fence", StepSettled)
def _drained_while_held(spot: Spot) -> Injection | None:
    """A settle frees a row that its request still holds."""
    row = spot.one(row for row in spot.ledger.steps[spot.event.step].rows.tolist())
    if row is None or spot.ledger.rows.state[row] != RowState.HELD:
        return None
    rows = ints([*spot.event.drained.tolist(), row])
    wrong = spot.naming_gone(attrs.evolve(spot.event, drained=rows))
    return Injection(events=(wrong,), invariant="in-flight-fence")


@FAULTS.at("drained-one-page-too-few", _STREAM, "refs-balance", StepSettled)
def _drained_one_page_too_few(spot: Spot) -> Injection | None:
    """A row that drains leaves a page behind."""
    wrong = spot.leaving_one_out()
    return None if wrong is None else Injection(events=(wrong,), invariant="refs-balance")


@FAULTS.at("drained-page-of-another-row", _DECISION, "page-freed-by-stranger", StepSettled)
def _drained_page_of_another_row(spot: Spot) -> Injection | None:
    """A settle lets a page go that a row references which does not drain."""
    drained = spot.event.drained.tolist()
    row = spot.other_row(*drained)
    if row is None:
        return None
    theirs = {page for other in drained for page in spot.own(other, spot.base).tolist()}
    page = spot.one(page for page in spot.own(row, spot.base).tolist() if page not in theirs)
    if page is None:
        return None
    pages = spot.event.pages[spot.layout.base].tolist()
    wrong = spot.with_list(spot.event, spot.base, [*pages, page])
    return Injection(events=(wrong,), invariant="page-freed-by-stranger")


def _a_page_of(spot: Spot, rows: np.ndarray) -> int | None:
    return spot.one(page for row in rows.tolist() for page in spot.own(row, spot.base).tolist())


@FAULTS.at("dispatched-under-a-write", _DECISION, "in-flight-fence", StepDispatched)
def _dispatched_under_a_write(spot: Spot) -> Injection | None:
    """A step reads a page that a transfer still writes."""
    page = _a_page_of(spot, spot.event.rows)
    if page is None:
        return None
    return Injection(
        events=(spot.pinned([page], writes=True), spot.event), invariant="in-flight-fence"
    )


@FAULTS.at("committed-under-a-write", _DECISION, "in-flight-fence", Committed)
def _committed_under_a_write(spot: Spot) -> Injection | None:
    """Tokens are committed on a page that a transfer still writes."""
    event, rows, size = spot.event, spot.ledger.rows, spot.base.page_size
    at = spot.where(event.committed_len > rows.committed[event.rows])
    if at is None:
        return None
    row, last = int(event.rows[at]), int(event.committed_len[at]) - 1
    page = int(spot.ledger.pages_of(row, spot.base.idx)[last // size])
    if not page:
        return None
    return Injection(events=(spot.pinned([page], writes=True), event), invariant="in-flight-fence")


@FAULTS.at("evicted-while-pinned", _DECISION, "evicted-while-locked", Evicted)
def _evicted_while_pinned(spot: Spot) -> Injection | None:
    """A cached page is evicted while a store still reads it."""
    page = spot.one(spot.event.pages[spot.layout.base])
    if page is None:
        return None
    return Injection(events=(spot.pinned([page]), spot.event), invariant="evicted-while-locked")


@FAULTS.at("page-freed-while-pinned", _DECISION, "pinned-page-freed", Released)
def _page_freed_while_pinned(spot: Spot) -> Injection | None:
    """A page whose row is gone is handed out while a store still reads it."""
    event, row = spot.event, spot.event.row
    if row is None or spot.ledger.rows.in_flight[row] or spot.shares_spaces:
        return None
    space = spot.space(spot.base)
    own = spot.own(row, spot.base)
    page = spot.one(own[(space.state[own] == PageState.PRIVATE) & (space.pins[own] == 0)])
    other = spot.one(
        other
        for other in spot.rows(RowState.HELD)
        if other != row and _can_grow_by_a_page(spot, other)
    )
    if page is None or other is None:
        return None
    length = int(spot.ledger.rows.allocated[other]) + 1
    pages = tuple(
        ints([page] if group.idx == spot.base.idx else spot.free(group, 1) or ())
        for group in spot.layout.groups
    )
    wrong = Allocated(ints([other]), ints([length]), pages)
    return Injection(events=(spot.pinned([page]), event, wrong), invariant="pinned-page-freed")


def _can_grow_by_a_page(spot: Spot, row: int) -> bool:
    """Whether one more token takes one more page of every group."""
    length = int(spot.ledger.rows.allocated[row])
    return length % spot.layout.align == 0 and length < spot.layout.capacity


@FAULTS.at("pin-on-a-free-page", _DECISION, "pinned-page-freed", Allocated, Released, Evicted)
def _pin_on_a_free_page(spot: Spot) -> Injection | None:
    """A store is queued for a page that is FREE by now."""
    page = spot.one(spot.pages_in(spot.base, PageState.FREE))
    if page is None:
        return None
    return Injection(events=(spot.pinned([page]),), invariant="pinned-page-freed")


@FAULTS.at("pin-id-again", _STREAM, "pinned-page-freed", Committed)
def _pin_id_again(spot: Spot) -> Injection | None:
    """Two pins have one id, so that one end ends both."""
    page = _a_page_of(spot, spot.event.rows)
    if page is None:
        return None
    pinned = spot.pinned([page])
    return Injection(events=(pinned, pinned), invariant="pinned-page-freed")


@FAULTS.at("unpin-doubled", _STREAM, "pinned-page-freed", Committed)
def _unpin_doubled(spot: Spot) -> Injection | None:
    """The end of a pin is told twice."""
    page = _a_page_of(spot, spot.event.rows)
    if page is None:
        return None
    pinned = spot.pinned([page])
    unpinned = Unpinned(pinned.pin_id, pinned.group, pinned.pages)
    return Injection(events=(pinned, unpinned, unpinned), invariant="pinned-page-freed")


@FAULTS.at("unpin-one-page-too-few", _STREAM, "pinned-page-freed", Committed, Protected)
def _unpin_one_page_too_few(spot: Spot) -> Injection | None:
    """The end of a pin leaves out one of its pages."""
    row = spot.other_row()
    pages = [] if row is None else spot.own(row, spot.base).tolist()
    if len(pages) < 2:
        return None
    pinned = spot.pinned(pages)
    wrong = Unpinned(pinned.pin_id, pinned.group, ints(pages[1:]))
    return Injection(events=(pinned, wrong), invariant="pinned-page-freed")


@FAULTS.at("page-0-pinned", _STREAM, "reserved-untouched", Allocated)
def _page_0_pinned(spot: Spot) -> Injection:
    """The page of padded writes is pinned."""
    return Injection(events=(spot.pinned([0]),), invariant="reserved-untouched")


@FAULTS.at("resized-over-a-pinned-page", _DECISION, "pinned-page-freed", Released, Allocated)
def _resized_over_a_pinned_page(spot: Spot) -> Injection | None:
    """A pool shrinks over a cached page that a store still reads."""
    space = spot.space(spot.base)
    lowest = int(np.flatnonzero((space.refs > 0) | (space.pins > 0)).max(initial=0))
    page = spot.one(page for page in spot.pages_in(spot.base, PageState.CACHED) if page > lowest)
    if page is None:
        return None
    wrong = Resized(spot.base.space_idx, int(page))
    return Injection(events=(spot.pinned([int(page)]), wrong), invariant="pinned-page-freed")


@FAULTS.at("idle-while-rows-are-held", _DECISION, "idle-no-leak", Released, Allocated, StepSettled)
def _idle_while_rows_are_held(spot: Spot) -> Injection | None:
    """The engine calls itself idle while requests hold rows."""
    if not spot.ledger.rows.in_use().size:
        return None
    return Injection(events=(Marked("idle", idle=True),), invariant="idle-no-leak")


@FAULTS.at("idle-with-a-pin-left", _STREAM, "idle-no-leak", Marked)
def _idle_with_a_pin_left(spot: Spot) -> Injection | None:
    """A look-up pins cached pages, nothing is loaded, and the pin stays when all is over."""
    page = spot.one(spot.pages_in(spot.base, PageState.CACHED))
    if not spot.event.idle or page is None:
        return None
    return Injection(events=(spot.pinned([page]), spot.event), invariant="idle-no-leak")
