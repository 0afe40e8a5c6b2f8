"""The largest and the least number for which something holds, where it holds up (or down) to it."""

from __future__ import annotations

from collections.abc import Callable


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number in [1, most] that fits, 0 where none does; what is smaller fits too."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def least(suffices: Callable[[int], bool], most: int) -> int | None:
    """The least number in [1, most] that suffices, None where none does; what is larger does."""
    low, high = 1, 1
    while not suffices(high):
        if high >= most:
            return None
        low, high = high + 1, min(high * 2, most)
    while low < high:
        middle = (low + high) // 2
        if suffices(middle):
            high = middle
        else:
            low = middle + 1
    return low
