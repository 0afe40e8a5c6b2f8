"""Lengths into pages, on the hot path: constants kept as arrays, so that numpy converts none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]


class PageMeasure:
    """The page size and table width of one group, ready for arithmetic with int32 arrays.

    An operation of an array with a Python int takes twice as long as one with a 0-d array, and
    a shift a fifth of a division.
    """

    __slots__ = ("_round_up", "_shift", "_size", "table_width")

    def __init__(self, page_size: int, table_width: int) -> None:
        self._size = np.array(page_size, np.int32)
        self._round_up = np.array(page_size - 1, np.int32)
        power = page_size & (page_size - 1) == 0
        self._shift = np.array(page_size.bit_length() - 1, np.int32) if power else None
        self.table_width = np.array(table_width, np.uint32)

    def pages_of(self, lengths: I32) -> I32:
        """How many pages lengths take; negative lengths take none or less."""
        if self._shift is None:
            return (lengths + self._round_up) // self._size
        return (lengths + self._round_up) >> self._shift

    def slots_of(self, pages: I32, positions: I32) -> I32:
        """Slots of positions that lie on these pages."""
        return pages * self._size + (
            positions & self._round_up if self._shift is not None else positions % self._size
        )

    def page_idx(self, positions: I32) -> I32:
        """Table indices of positions."""
        return positions // self._size if self._shift is None else positions >> self._shift

    def first_slots(self, pages: I32) -> I32:
        """The first slot of each page."""
        return pages * self._size
