"""Faults in the columns of rows, in the books of holders, and in a snapshot of the whole state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from kvlife.ledger import FrozenState, Ledger, PageState, RowState, state_digest
from kvlife.testing.faults.columns import ANYWHERE, found_by_audit
from kvlife.testing.faults.fault import Faults, Injection, Kind, When
from kvlife.testing.faults.spot import Spot

FAULTS = Faults()
_COLUMNS, _AUDIT = Kind.COLUMNS, When.AUDIT
Arrays = dict[str, npt.NDArray[Any]]  # Any: columns of every dtype


def _in_rows(name: str, row: int | None, value: int, invariant: str) -> Injection | None:
    if row is None:
        return None

    def edit(ledger: Ledger) -> None:
        getattr(ledger.rows, name)[row] = value

    return found_by_audit(invariant, edit)


@FAULTS.at("committed-column-up", _COLUMNS, "ladder-order", *ANYWHERE, when=_AUDIT)
def _committed_column_up(spot: Spot) -> Injection | None:
    """A row is committed beyond its allocated length."""
    row = spot.one(spot.rows(RowState.HELD))
    length = 0 if row is None else int(spot.ledger.rows.allocated[row]) + 1
    return _in_rows("committed", row, length, "ladder-order")


@FAULTS.at("protected-column-off", _COLUMNS, "protected-aligned", *ANYWHERE, when=_AUDIT)
def _protected_column_off(spot: Spot) -> Injection | None:
    """A row has published a token less than whole pages."""
    rows, align = spot.ledger.rows, spot.layout.align
    row = spot.one(row for row in spot.rows(RowState.HELD) if rows.protected[row] and align > 1)
    length = 0 if row is None else int(rows.protected[row]) - 1
    return _in_rows("protected", row, length, "protected-aligned")


@FAULTS.at("settled-column-down", _COLUMNS, "settled-bound", *ANYWHERE, when=_AUDIT)
def _settled_column_down(spot: Spot) -> Injection | None:
    """A row is committed beyond what steps have settled."""
    rows = spot.ledger.rows
    row = spot.one(row for row in spot.rows(RowState.HELD) if rows.committed[row] > 0)
    length = 0 if row is None else int(rows.committed[row]) - 1
    return _in_rows("settled", row, length, "settled-bound")


@FAULTS.at("in-flight-one-up", _COLUMNS, "in-flight-fence", *ANYWHERE, when=_AUDIT)
def _in_flight_one_up(spot: Spot) -> Injection | None:
    """A row counts a step in flight that was never dispatched."""
    row = spot.one(spot.rows(RowState.HELD))
    count = 0 if row is None else int(spot.ledger.rows.in_flight[row]) + 1
    return _in_rows("in_flight", row, count, "in-flight-fence")


@FAULTS.at("row-state-unknown", _COLUMNS, "row-conservation", *ANYWHERE, when=_AUDIT)
def _row_state_unknown(spot: Spot) -> Injection | None:
    """A FREE row is in no state that there is."""
    return _in_rows("state", spot.one(spot.rows(RowState.FREE)), 7, "row-conservation")


@FAULTS.at("free-row-with-tokens", _COLUMNS, "row-conservation", *ANYWHERE, when=_AUDIT)
def _free_row_with_tokens(spot: Spot) -> Injection | None:
    """A FREE row still has a length."""
    return _in_rows("allocated", spot.one(spot.rows(RowState.FREE)), 1, "row-conservation")


@FAULTS.at("cursor-column-off", _COLUMNS, "window-cursor", *ANYWHERE, when=_AUDIT)
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
        return found_by_audit("window-cursor", partial(_move_cursor, window_idx, row))
    return None


def _move_cursor(window_idx: int, row: int, ledger: Ledger) -> None:
    ledger.rows.cursors[window_idx, row] += 1


@FAULTS.at("holder-lost", _COLUMNS, "row-single-holder", *ANYWHERE, when=_AUDIT)
def _holder_lost(spot: Spot) -> Injection | None:
    """A request is in no book any more, and its row is still held for it."""
    sessions = spot.ledger.rows.session
    rid = spot.one(rid for rid, row in spot.ledger.requests.items() if sessions[row] is None)
    if rid is None:
        return None

    def edit(ledger: Ledger) -> None:
        del ledger.requests[rid]

    return found_by_audit("row-single-holder", edit)


@FAULTS.at("holder-on-another-row", _COLUMNS, "row-single-holder", *ANYWHERE, when=_AUDIT)
def _holder_on_another_row(spot: Spot) -> Injection | None:
    """A request's row is one that another request holds."""
    rid = spot.one(spot.ledger.requests)
    other = None if rid is None else spot.other_row(spot.ledger.requests[rid])
    if rid is None or other is None:
        return None

    def edit(ledger: Ledger) -> None:
        ledger.requests[rid] = other

    return found_by_audit("row-single-holder", edit)


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


@FAULTS.at("snapshot-lies-about-refs", _COLUMNS, "refs-balance", *ANYWHERE, when=_AUDIT)
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


@FAULTS.at("snapshot-lies-about-a-length", _COLUMNS, "ladder-order", *ANYWHERE, when=_AUDIT)
def _snapshot_lies_about_a_length(spot: Spot) -> Injection | None:
    """A state is restored in which a row is committed beyond its allocated length."""
    used = spot.ledger.rows.in_use()
    at = spot.one(range(used.size))
    if at is None:
        return None

    def change(arrays: Arrays) -> None:
        arrays["row.committed"][at] = arrays["row.allocated"][at] + 1

    return _lying(change, "ladder-order")
