"""The guard over window cursors: what they pass is gone, and what a query still needs is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvlife import transitions
from kvlife.events import (
    Admitted,
    Allocated,
    Protected,
    Resumed,
    RolledBack,
    SessionRestored,
    SessionSaved,
    WindowEvicted,
)
from kvlife.invariants.effect import holders
from kvlife.invariants.finding import Evidence, few, naming

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvlife.config import GroupLayout
    from kvlife.invariants.effect import I64, Effect

    Bools = npt.NDArray[np.bool_]


def window_cursor(effect: Effect) -> Evidence | None:
    """A cursor passes only what no later query needs, moves on, and by whole pages."""
    event = effect.event
    if isinstance(event, WindowEvicted):
        group = effect.ledger.layout.groups[event.group]
        if group.window is None:
            return {"why": "the group has no window", "group": group.name, "rows": few(event.rows)}
        return _judge(effect, group, _evicted(effect, group), "the cursor passes what is needed")
    for group in effect.ledger.layout.window_groups:
        match event:
            case Admitted() | Resumed():
                broken = _off_bound(effect, group, effect.after.committed)
                why = "the prefix lacks pages of its window"
            case Allocated():
                broken = _skipped(effect, group)
                why = "a cursor skips positions that have pages, or lie beyond the end"
            case RolledBack() | SessionSaved() | SessionRestored():
                broken = _cut(effect, group)
                why = "the window of the new end is gone"
            case Protected():
                found = _published_gone(effect, event, group)
                if found is not None:
                    return found
                continue
            case _:
                return None
        found = _judge(effect, group, broken, why)
        if found is not None:
            return found
    return None


def _cursors(effect: Effect, group: GroupLayout) -> tuple[I64, I64]:
    assert group.window_idx is not None
    return effect.before.cursors[group.window_idx], effect.after.cursors[group.window_idx]


def _bound(group: GroupLayout, committed: I64) -> I64:
    assert group.window is not None
    return transitions.cursor_bound(committed, group.window, group.page_size)


def _off_bound(effect: Effect, group: GroupLayout, committed: I64) -> Bools:
    _old, new = _cursors(effect, group)
    broken: Bools = (new > _bound(group, committed)) | (new % group.page_size != 0)
    return broken


def _evicted(effect: Effect, group: GroupLayout) -> Bools:
    old, new = _cursors(effect, group)
    return _off_bound(effect, group, effect.before.committed) | (new < old)


def _skipped(effect: Effect, group: GroupLayout) -> Bools:
    old, new = _cursors(effect, group)
    moved = new != old
    end = transitions.page_floor(effect.after.allocated, group.page_size)
    broken: Bools = (new < old) | (new % group.page_size != 0) | (new > end)
    for i in np.flatnonzero(moved & ~broken):
        low = max(int(old[i]), int(effect.before.floor[i])) // group.page_size
        high = -(-int(effect.before.allocated[i]) // group.page_size)
        base = int(effect.rows[i]) * group.table_width
        held = effect.ledger.tables[group.idx][base + low : base + max(low, high)]
        # A page that holds the end of the floor is never taken by the window.
        first = -(-int(effect.before.floor[i]) // group.page_size) - low
        broken[i] = bool(held[max(first, 0) :].any())
    broken &= moved
    return broken


def _cut(effect: Effect, group: GroupLayout) -> Bools:
    """A roll-back keeps the window of the new end, as far as the floor does not cover it."""
    old, _new = _cursors(effect, group)
    committed, allocated = effect.after.committed, effect.after.allocated
    floor = effect.before.floor
    assert group.window is not None
    return (
        transitions.window_lack(old, floor, committed, allocated, group.window, group.page_size) > 0
    )


def _published_gone(effect: Effect, event: Protected, group: GroupLayout) -> Evidence | None:
    old, _new = _cursors(effect, group)
    low = max(int(effect.before.protected[0]), 0) // group.page_size
    table_idx = low + np.flatnonzero(event.keys[group.idx])
    table_idx = table_idx[table_idx < group.table_width]
    entries = effect.ledger.tables[group.idx][event.row * group.table_width + table_idx]
    gone = table_idx[(entries == 0) & (table_idx < int(old[0]) // group.page_size)]
    if not gone.size:
        return None
    return {
        "why": "window pages are published that the cursor has passed",
        "group": group.name,
        "rows": [event.row],
        "holders": holders(effect.ledger, [event.row]),
        "cursor": int(old[0]),
        **naming(table_idx=gone),
    }


def _judge(effect: Effect, group: GroupLayout, broken: Bools, why: str) -> Evidence | None:
    if not broken.any():
        return None
    old, new = _cursors(effect, group)
    rows = effect.rows[broken]
    return {
        "why": why,
        "group": group.name,
        "window": group.window,
        "page_size": group.page_size,
        **naming(
            rows=rows,
            cursor=new[broken],
            cursor_before=old[broken],
            committed=effect.after.committed[broken],
            allocated=effect.after.allocated[broken],
            bound=_bound(group, effect.after.committed)[broken],
        ),
        "holders": holders(effect.ledger, rows),
    }
