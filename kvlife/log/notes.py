"""What a writer notes of names on the way, and gathers into sets on the log's own thread."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.config import MAX_PAGES, Layout
from kvlife.events.arrays import I32
from kvlife.log.names import StretchNames

_Seen = npt.NDArray[np.bool_]


class Notes:
    """Names as the encoder meets them; arrays of int32 as bytes, which nobody can change.

    `named` and `taken` are by cache group: pages that an event names, and those of them that it
    takes from the free list. What stands here more than once, or belongs to a group that was not
    written after all, only makes the sets a little larger.
    """

    __slots__ = ("named", "requests", "rows", "sessions", "taken")

    def __init__(self, num_groups: int) -> None:
        self.named: list[list[bytes]] = [[] for _ in range(num_groups)]
        self.taken: list[list[bytes]] = [[] for _ in range(num_groups)]
        self.rows: list[bytes] = []
        self.requests: list[str] = []
        self.sessions: list[str] = []


@attrs.define
class _Sets:
    """The names of one stretch while it is written; pages by page space, ids as often as named.

    Pages have places as far up as an id was named: a pool may have grown.
    """

    first_seq: int
    named: list[_Seen]
    taken: list[_Seen]
    rows: _Seen
    requests: bytearray = attrs.field(factory=bytearray)
    sessions: bytearray = attrs.field(factory=bytearray)

    def mark(self, space_idx: int, named: I32, taken: I32) -> None:
        """Add pages of a space."""
        end = 1 + int(max(named.max(initial=-1), taken.max(initial=-1)))
        for columns, pages in ((self.named, named), (self.taken, taken)):
            if end > columns[space_idx].size:
                more = np.zeros(end - columns[space_idx].size, np.bool_)
                columns[space_idx] = np.concatenate((columns[space_idx], more))
            columns[space_idx][pages] = True

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
        self._sets = self._empty(first_seq)
        self._done: list[StretchNames] = []
        self.lost = False

    def take_up(self, notes: Notes, next_seq: int | None) -> None:
        """Add notes to the present stretch; the next one begins at `next_seq`, if that is given."""
        lost, self.lost = self.lost, True
        sets = self._sets
        for group in self._layout.groups:
            named = _ids(notes.named[group.idx], MAX_PAGES)
            sets.mark(group.space_idx, named, _ids(notes.taken[group.idx], MAX_PAGES))
        sets.rows[_ids(notes.rows, sets.rows.size)] = True
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
        spaces = self._layout.spaces
        return _Sets(
            first_seq=first_seq,
            named=[np.zeros(space.num_pages, np.bool_) for space in spaces],
            taken=[np.zeros(space.num_pages, np.bool_) for space in spaces],
            rows=np.zeros(self._layout.num_rows, np.bool_),
        )


def _ids(noted: list[bytes], end: int) -> I32:
    """The noted ids below `end`: no reader takes an event with others."""
    ids = np.frombuffer(b"".join(noted), np.int32)
    if ids.size and (ids.min() < 0 or ids.max() >= end):
        return ids[(ids >= 0) & (ids < end)]
    return ids


def _bits(seen: _Seen) -> bytes:
    return np.packbits(seen, bitorder="little").tobytes()


def _checksums(texts: Sequence[str]) -> bytes:
    crcs = (zlib.crc32(text.encode()) for text in texts)
    return np.fromiter(crcs, "<u4", len(texts)).tobytes()


def _rising(checksums: bytearray) -> bytes:
    return np.unique(np.frombuffer(checksums, "<u4")).tobytes()
