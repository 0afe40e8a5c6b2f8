"""What a writer notes of names on the way, and gathers into sets on the log's own thread."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.config import Layout
from kvlife.log.names import StretchNames

_Seen = npt.NDArray[np.bool_]


class Notes:
    """Names as the encoder meets them; arrays of int32 as bytes, which nobody can change.

    `named` and `taken` are by cache group: pages that an event names, and those of them that it
    takes from the free list. `num_pages` is by page space. What stands here more than once, or
    belongs to a group that was not written after all, only makes the sets a little larger.
    """

    __slots__ = ("named", "num_pages", "requests", "rows", "sessions", "taken")

    def __init__(self, num_groups: int) -> None:
        self.named: list[list[bytes]] = [[] for _ in range(num_groups)]
        self.taken: list[list[bytes]] = [[] for _ in range(num_groups)]
        self.rows: list[bytes] = []
        self.requests: list[str] = []
        self.sessions: list[str] = []
        self.num_pages: dict[int, int] = {}


@attrs.define
class _Sets:
    """The names of one stretch while it is written; pages by page space, ids as often as named."""

    first_seq: int
    named: list[_Seen]
    taken: list[_Seen]
    rows: _Seen
    requests: bytearray = attrs.field(factory=bytearray)
    sessions: bytearray = attrs.field(factory=bytearray)

    def packed(self) -> StretchNames:
        """The same, as a file has it."""
        pairs = zip(self.named, self.taken, strict=True)
        return StretchNames(
            first_seq=self.first_seq,
            named=tuple(_bits(named | taken) for named, taken in pairs),
            taken=tuple(map(_bits, self.taken)),
            rows=_bits(self.rows),
            requests=_rising(self.requests),
            sessions=_rising(self.sessions),
        )


class GatheredNames:
    """The names of one segment while it is written, stretch by stretch.

    `lost` says that notes could not be taken up, so that the sets are not to be believed.
    """

    def __init__(self, layout: Layout, first_seq: int) -> None:
        self._layout = layout
        self._num_pages = [space.num_pages for space in layout.spaces]
        self._sets = self._empty(first_seq)
        self._done: list[StretchNames] = []
        self.lost = False

    def take_up(self, notes: Notes, next_seq: int | None) -> None:
        """Add notes to the present stretch; the next one begins at `next_seq`, if that is given."""
        lost, self.lost = self.lost, True
        sets = self._sets
        for space_idx, num_pages in notes.num_pages.items():
            self._grow(space_idx, num_pages)
        for group in self._layout.groups:
            named, taken = sets.named[group.space_idx], sets.taken[group.space_idx]
            _mark(named, notes.named[group.idx])
            _mark(taken, notes.taken[group.idx])
        _mark(sets.rows, notes.rows)
        sets.requests += _checksums(notes.requests)
        sets.sessions += _checksums(notes.sessions)
        if next_seq is not None and next_seq != sets.first_seq:
            self._done.append(sets.packed())
            self._sets = self._empty(next_seq)
        self.lost = lost

    def stretches(self) -> list[StretchNames]:
        """The names of each stretch."""
        return [*self._done, self._sets.packed()]

    def _empty(self, first_seq: int) -> _Sets:
        return _Sets(
            first_seq=first_seq,
            named=[np.zeros(num, np.bool_) for num in self._num_pages],
            taken=[np.zeros(num, np.bool_) for num in self._num_pages],
            rows=np.zeros(self._layout.num_rows, np.bool_),
        )

    def _grow(self, space_idx: int, num_pages: int) -> None:
        more = num_pages - self._num_pages[space_idx]
        if more > 0:
            self._num_pages[space_idx] = num_pages
            for columns in (self._sets.named, self._sets.taken):
                columns[space_idx] = np.concatenate([columns[space_idx], np.zeros(more, np.bool_)])


def _mark(seen: _Seen, noted: list[bytes]) -> None:
    if not noted:
        return
    ids = np.frombuffer(b"".join(noted), np.int32)
    try:
        seen[ids] = True
    except IndexError:
        # No reader takes an event with an id out of range.
        seen[ids[(ids >= 0) & (ids < seen.size)]] = True


def _bits(seen: _Seen) -> bytes:
    return np.packbits(seen, bitorder="little").tobytes()


def _checksums(texts: Sequence[str]) -> bytes:
    crcs = (zlib.crc32(text.encode()) for text in texts)
    return np.fromiter(crcs, "<u4", len(texts)).tobytes()


def _rising(checksums: bytearray) -> bytes:
    return np.unique(np.frombuffer(checksums, "<u4")).tobytes()
