"""The arithmetic of the ladder, written once: every function takes ints or int arrays alike.

All are pure and branch-free, so one definition serves a single record and a batch. Lengths and
cursors count tokens; `page_size` counts tokens a page.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

# One number per request, or one array entry per row of a batch.
Len = TypeVar("Len", int, npt.NDArray[np.int32], npt.NDArray[np.int64])


def page_floor(length: Len, page_size: int) -> Len:
    """The largest whole number of pages in `length`, in tokens."""
    return length // page_size * page_size


def page_ceil(length: Len, page_size: int) -> Len:
    """`length` rounded up to whole pages, in tokens."""
    return -(-length // page_size) * page_size


def num_pages(length: Len, page_size: int) -> Len:
    """How many pages `length` tokens lie on."""
    return -(-length // page_size)


def lower(left: Len, right: Len) -> Len:
    """The smaller of two lengths."""
    return right + (left - right) * (left < right)


def higher(left: Len, right: Len) -> Len:
    """The larger of two lengths."""
    return left + (right - left) * (left < right)


def commit_bound(settled_len: Len, allocated_len: Len) -> Len:
    """How far a request may be committed: what steps have settled of what is allocated."""
    return lower(settled_len, allocated_len)


def cursor_bound(committed_len: Len, window: int, page_size: int) -> Len:
    """The highest position the window cursor may have: the next query still sees its window."""
    zero = committed_len * 0
    return page_floor(higher(committed_len - (window - 1), zero), page_size)


def cursor_target(committed_len: Len, window: int, page_size: int) -> Len:
    """Where the engine moves the cursor, so that what is published now can be hit again."""
    keep = page_ceil(max(window, page_size), page_size)
    zero = committed_len * 0
    return page_floor(higher(committed_len - keep, zero), page_size)


def window_lack(
    cursor: Len,
    evict_floor: Len,
    committed_len: Len,
    allocated_len: Len,
    window: int,
    page_size: int,
) -> Len:
    """How much of the window that a request needs once it is cut to these lengths is gone.

    Gone is what lies between the floor, in whole pages, and the cursor. At 0 or less nothing lacks.
    """
    bound = cursor_bound(committed_len, window, page_size)
    needed = higher(page_ceil(evict_floor, page_size), bound)
    return lower(cursor, page_ceil(allocated_len, page_size)) - needed


def cursor_after_roll_back(cursor: Len, committed_len: Len, window: int, page_size: int) -> Len:
    """A roll-back takes the cursor along to where the new end's window begins, never forward."""
    return lower(cursor, cursor_bound(committed_len, window, page_size))


def settled_after_roll_back(settled_len: Len, allocated_len: Len, unbounded: int) -> Len:
    """What was settled above the new end is gone; one that never dispatched stays unbounded."""
    bounded = settled_len < unbounded
    return settled_len + (lower(settled_len, allocated_len) - settled_len) * bounded


def swa_dead_lo(protected_len: Len, evict_floor: Len, page_size: int) -> Len:
    """The lowest window position that the request may free itself.

    It is max(protected, floor), rounded up to a page where it lies above protected.
    """
    start = higher(protected_len, evict_floor)
    return start + (page_ceil(start, page_size) - start) * (start > protected_len)


def effective_committed_len(committed_len: Len, prompt_len: Len) -> Len:
    """What `finish` may publish where the answer's reasoning is stripped: the prompt at most."""
    return lower(committed_len, prompt_len)
