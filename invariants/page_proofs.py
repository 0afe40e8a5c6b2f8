"""The pieces of the fast proofs: over pages that are taken, let go or pinned, and rows in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvlife.ledger import PageState, RowState
from kvlife.ledger.entries import touched_entries
from kvlife.ledger.spans import num_at

if TYPE_CHECKING:
    from kvlife.events import PageLists
    from kvlife.ledger import Change, Ledger
    from kvlife.ledger.spans import At

I32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]

# States as the bytes that stand in a column for one row or page.
HELD, DRAINING = bytes((RowState.HELD,)), bytes((RowState.DRAINING,))
PRIVATE, CACHED = bytes((PageState.PRIVATE,)), bytes((PageState.CACHED,))


def distinct(pages: I32) -> bool:
    """Whether no page stands twice."""
    if len(pages) < 2:
        return True
    ordered = np.sort(pages)
    return 1 not in (ordered[1:] == ordered[:-1]).tobytes()


def referenced_enough(refs: I32, pages: I32) -> bool:
    """Whether each page has a ref for each time it stands; so none is FREE or in quarantine."""
    if not len(pages):
        return True
    if refs.take(pages).min() < 1:
        return False
    if distinct(pages):
        return True
    values, counts = np.unique(pages, return_counts=True)
    return bool((refs.take(values) >= counts).all())


def lets_go_exactly(ledger: Ledger, change: Change) -> bool:
    """Whether the pages named are those of the entries left, in their order, with refs enough."""
    gone, gone_at = change.gone, change.gone_at
    if gone is None or gone_at is None:
        return False
    layout = ledger.layout
    for group, named, at in zip(layout.groups, gone, gone_at, strict=True):
        if not len(named) and not num_at(at):
            continue
        table = ledger.tables[group.idx]
        here = table[at] if isinstance(at, slice) else table.take(at)
        if here.tobytes() != named.tobytes():
            return False
        if not referenced_enough(ledger.spaces[group.space_idx].refs, named):
            return False
    return len(layout.spaces) == len(layout.groups) or _enough_in_spaces(ledger, gone)


def _enough_in_spaces(ledger: Ledger, lists: PageLists) -> bool:
    return all(
        referenced_enough(space.refs, _in_space(ledger, lists, space_idx))
        for space_idx, space in enumerate(ledger.spaces)
    )


def _in_space(ledger: Ledger, lists: PageLists, space_idx: int) -> I32:
    parts = [
        pages
        for group, pages in zip(ledger.layout.groups, lists, strict=True)
        if group.space_idx == space_idx
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.int32)


def takes_free(ledger: Ledger, taken: PageLists, taken_at: tuple[At, ...]) -> bool:
    """Whether the pages are FREE, each once, as many as the entries, which name nothing yet."""
    layout = ledger.layout
    for group, pages, at in zip(layout.groups, taken, taken_at, strict=True):
        num = len(pages)
        if num != num_at(at):
            return False
        if num:
            table = ledger.tables[group.idx]
            here = table[at] if isinstance(at, slice) else table.take(at)
            if here.tobytes() != bytes(4 * num):
                return False
            if not _all_free(ledger, group.space_idx, pages):
                return False
    return distinct_where_shared(ledger, taken)


def distinct_where_shared(ledger: Ledger, lists: PageLists) -> bool:
    """Whether groups that share a space name different pages; each has named its own once."""
    layout = ledger.layout
    return len(layout.spaces) == len(layout.groups) or all(
        distinct(_in_space(ledger, lists, space_idx)) for space_idx in range(len(layout.spaces))
    )


def _all_free(ledger: Ledger, space_idx: int, pages: I32) -> bool:
    space = ledger.spaces[space_idx]
    # The head of the free list is FREE pages, each once; most events take just that.
    if space.free.is_head(pages):
        return True
    return space.state.take(pages).tobytes() == bytes(len(pages)) and distinct(pages)


def joins_cached(ledger: Ledger, joined: PageLists, joined_at: tuple[At, ...]) -> bool:
    """Whether the pages are CACHED ones of their groups, each once, and fill empty entries."""
    shared = len(ledger.layout.spaces) < len(ledger.layout.groups)
    for group, pages, at in zip(ledger.layout.groups, joined, joined_at, strict=True):
        num = len(pages)
        if num != num_at(at):
            return False
        if num:
            table, space = ledger.tables[group.idx], ledger.spaces[group.space_idx]
            here = table[at] if isinstance(at, slice) else table.take(at)
            if here.tobytes() != bytes(4 * num):
                return False
            if space.state.take(pages).tobytes() != CACHED * num or not distinct(pages):
                return False
            # In a space of one group every page in use is that group's.
            if shared and space.group.take(pages).tobytes() != bytes((group.idx,)) * num:
                return False
    return True


def clear_of_pins(ledger: Ledger, index: Index, low_len: I32, high_len: I32) -> bool:
    """Whether no page of positions [low, high) of the rows is pinned, where any pin writes."""
    if not ledger.pins or not any(pin.writes for pin in ledger.pins.values()):
        return True
    for group in ledger.layout.groups:
        at = touched_entries(group, index, low_len, high_len)
        pages = ledger.tables[group.idx].take(at)
        pins = ledger.spaces[group.space_idx].pins
        # A page beyond a space that was resized in error is not looked up: the guards are asked.
        if pages.size and (pages.max() >= len(pins) or pins.take(pages).any()):
            return False
    return True
