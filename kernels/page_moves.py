"""For references: what happens to a page's state, references and pins, in torch.

As `kvlife.ledger.spaces.PageSpace` does it, free list and stamps apart; the functions of
`page_moves_kernel.py` have the same names. `spots` (int64) are pages of the space, in the order of
the entries that name them. Back come the entries that made their page FREE, and a code for each of
what was wrong, 0 for nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kvlife.kernels.page_states import PageState
from kvlife.kernels.violations import Findings, ViolationCode

# Which entries made their page FREE, and the code of what was wrong with each.
Moved = tuple[Tensor, Tensor]


def named_before(spots: Tensor, num_pages: int) -> Tensor:
    """How often each entry's page stands among the entries before it: int64, mostly zeros."""
    order = torch.arange(spots.numel(), device=spots.device)
    last = spots.new_empty(num_pages)
    last[spots] = order
    if torch.equal(last[spots], order):
        return torch.zeros_like(spots)
    values, by_page = spots.sort(stable=True)
    # The place of each page's first entry among the sorted ones.
    first = torch.searchsorted(values, values)
    nth = torch.empty_like(spots)
    nth[by_page] = order - first
    return nth


def existing(
    pages: Tensor, num_pages: int, at: Tensor | None = None, table_len: int = 0
) -> Tensor | None:
    """Which pages, and entries (-1: none) of a table of that length, exist; None where all do."""
    if not pages.numel():
        return None
    exist = (pages >= 0) & (pages < num_pages)
    if at is not None:
        exist &= (at >= -1) & (at < table_len)
    return None if bool(exist.all()) else exist


def enter(table: Tensor, at: Tensor, pages: Tensor | int, exist: Tensor | None) -> None:
    """Write the pages, or 0, to the entries that exist; -1 is none."""
    written = at >= 0 if exist is None else (at >= 0) & exist
    table[at[written]] = pages[written] if isinstance(pages, Tensor) else pages


def carry_out(
    move: Callable[[Tensor], Moved],
    pages: Tensor,
    exist: Tensor | None,
    findings: Findings,
    where: Tensor,
) -> Tensor:
    """Move the pages that exist and note what was wrong; returns the pages that became FREE."""
    if exist is None:
        gone, codes = move(pages.long())
    else:
        gone = torch.zeros_like(exist)
        codes = torch.full_like(pages, int(ViolationCode.OUTSIDE), dtype=torch.int64)
        gone[exist], codes[exist] = move(pages[exist].long())
    reserved = pages == 0 if exist is None else (pages == 0) & exist
    codes[reserved] = int(ViolationCode.RESERVED_TOUCHED)
    findings.add(codes, page=pages, where=where)
    return pages * gone


def _moved(code: ViolationCode, amiss: Tensor, gone: Tensor | None = None) -> Moved:
    return torch.zeros_like(amiss) if gone is None else gone, amiss * int(code)


def _count(column: Tensor, spots: Tensor, amount: int) -> None:
    column.index_add_(0, spots, torch.full_like(spots, amount, dtype=column.dtype))


def _is(states: Tensor, *wanted: PageState) -> Tensor:
    found = states == int(wanted[0])
    for state in wanted[1:]:
        found |= states == int(state)
    return found


def take(state: Tensor, refs: Tensor, spots: Tensor) -> Moved:
    """FREE becomes PRIVATE; what rows hold gains a reference."""
    states = state[spots]
    free = _is(states, PageState.FREE)
    state[spots[free]] = int(PageState.PRIVATE)
    owned = free | _is(states, PageState.PRIVATE, PageState.CACHED)
    _count(refs, spots[owned], 1)
    again = named_before(spots, state.numel()) > 0
    return _moved(ViolationCode.NOT_FREE, ~free | again)


def join(state: Tensor, refs: Tensor, spots: Tensor) -> Moved:
    """PRIVATE and CACHED pages gain a reference."""
    shared = _is(state[spots], PageState.PRIVATE, PageState.CACHED)
    _count(refs, spots[shared], 1)
    return _moved(ViolationCode.NOT_SHARED, ~shared)


def let_go(state: Tensor, refs: Tensor, pins: Tensor, spots: Tensor) -> Moved:
    """One reference less, not below 0; a PRIVATE page's last frees it."""
    held = refs[spots] - named_before(spots, state.numel())
    _count(refs, spots, -1)
    refs[spots] = refs[spots].clamp_min(0)
    last = (held == 1) & _is(state[spots], PageState.PRIVATE)
    pinned = pins[spots] > 0
    state[spots[last & pinned]] = int(PageState.QUARANTINED)
    state[spots[last & ~pinned]] = int(PageState.FREE)
    return _moved(ViolationCode.DOUBLE_FREE, held <= 0, last & ~pinned)


def publish(state: Tensor, spots: Tensor) -> Moved:
    """PRIVATE becomes CACHED."""
    states = state[spots]
    private = _is(states, PageState.PRIVATE)
    state[spots[private]] = int(PageState.CACHED)
    return _moved(ViolationCode.NOT_PUBLISHABLE, ~(private | _is(states, PageState.CACHED)))


def evict(state: Tensor, refs: Tensor, pins: Tensor, spots: Tensor) -> Moved:
    """CACHED becomes FREE, whatever still refers to it."""
    first = named_before(spots, state.numel()) == 0
    freed = first & _is(state[spots], PageState.CACHED)
    locked = (refs[spots] != 0) | (pins[spots] > 0)
    state[spots[freed]] = int(PageState.FREE)
    refs[spots[freed]] = 0
    return _moved(ViolationCode.NOT_EVICTABLE, ~freed | locked, freed)


def pin(state: Tensor, pins: Tensor, spots: Tensor) -> Moved:
    """One pin more, whatever the state."""
    _count(pins, spots, 1)
    return _moved(ViolationCode.NOT_PINNABLE, _is(state[spots], PageState.FREE))


def unpin(state: Tensor, pins: Tensor, spots: Tensor) -> Moved:
    """One pin less, not below 0; QUARANTINED and unpinned becomes FREE."""
    held = pins[spots] - named_before(spots, state.numel())
    _count(pins, spots, -1)
    pins[spots] = pins[spots].clamp_min(0)
    freed = (held == 1) & _is(state[spots], PageState.QUARANTINED)
    state[spots[freed]] = int(PageState.FREE)
    return _moved(ViolationCode.NOT_PINNED, held <= 0, freed)
