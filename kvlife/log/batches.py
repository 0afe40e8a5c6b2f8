"""What a writer remembers of batches: their rows, written once, and the lengths last given."""

from __future__ import annotations

import numpy as np

from kvlife.log.ints import I32, pack_ints, put_varint, require_int32
from kvlife.log.wire import INLINE_ROWS, MAX_RUN, NUM_SLOTS, ONES


class LenTrail:
    """The lengths that one kind of event last gave to a batch, and by how much they grew.

    `last` is private and is moved on by `stride` before a comparison, so that an array that its
    owner changes in place is still seen rightly. `code` is what an event writes whose lengths are
    `last + stride`: the batch's slot, and the constant difference.
    """

    __slots__ = ("code", "last", "stride")

    def __init__(self, slot: int, last: I32) -> None:
        self.last = last.copy()
        self.stride: I32 = np.ones_like(self.last)
        self.code = bytes((slot + 1, ONES))

    def moved_to(self, lengths: I32) -> bytes:
        """What an event writes whose lengths differ from `last - stride` in another way.

        The caller has moved `last` on by `stride`, as it does before each comparison.
        """
        require_int32(lengths)
        if lengths.size != self.last.size:
            raise ValueError(f"{lengths.size} lengths for {self.last.size} rows")
        np.subtract(self.last, self.stride, self.last)
        rise = lengths - self.last
        np.copyto(self.last, lengths)
        out = bytearray(self.code[:1])
        constant = pack_ints(out, rise, MAX_RUN) and int(rise[0]) == int(rise[-1])
        if constant:
            self.stride = rise
            self.code = bytes(out)
        return bytes(out)


class Batch:
    """Rows under a slot number; the trails by (event code, field index)."""

    __slots__ = ("allocated", "committed", "content", "rows", "slot", "trails")

    def __init__(self, slot: int, rows: I32, content: bytes) -> None:
        self.slot = slot
        self.rows = rows
        self.content = content
        self.trails: dict[tuple[int, int], LenTrail] = {}
        self.allocated: LenTrail | None = None
        self.committed: LenTrail | None = None


def is_fixed(rows: I32) -> bool:
    """Whether nobody can change the array, so that its identity stands for its content."""
    array: object = rows
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    return True


class BatchTable:
    """The batches of the present stretch, by identity of a read-only rows array or by content.

    There are `NUM_SLOTS` slots, taken in turn; a slot that is taken again is defined again.
    """

    __slots__ = ("_by_content", "_next_slot", "_slots", "by_id", "definitions", "named")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything: a segment, a snapshot or a RESET record begins a stretch."""
        self.by_id: dict[int, Batch] = {}
        self._by_content: dict[bytes, Batch] = {}
        self._slots: list[Batch] = []
        self._next_slot = 0
        self.definitions: list[bytes] = []
        # Slots that the present group names. Definitions stand before the group, so that none of
        # these may be defined again in it.
        self.named: set[int] = set()

    def find(self, rows: I32) -> Batch | None:
        """The batch of these rows, defined where it is new; None where they shall stand inline."""
        batch = self.by_id.get(id(rows)) or self._find_content(rows)
        if batch is not None:
            self.named.add(batch.slot)
        return batch

    def _find_content(self, rows: I32) -> Batch | None:
        require_int32(rows)
        if rows.size <= INLINE_ROWS:
            return None
        content = rows.tobytes()
        batch = self._by_content.get(content)
        if batch is None:
            if self._next_slot in self.named:
                return None
            batch = self._define(content, rows.size)
        if is_fixed(rows):
            self.by_id.pop(id(batch.rows), None)
            batch.rows = rows
            self.by_id[id(rows)] = batch
        return batch

    def _define(self, content: bytes, num: int) -> Batch:
        slot = self._next_slot
        self._next_slot = (slot + 1) % NUM_SLOTS
        rows = np.frombuffer(content, np.int32)
        batch = Batch(slot, rows, content)
        if slot < len(self._slots):
            gone = self._slots[slot]
            self.by_id.pop(id(gone.rows), None)
            del self._by_content[gone.content]
            self._slots[slot] = batch
        else:
            self._slots.append(batch)
        self._by_content[content] = batch
        out = bytearray((slot,))
        put_varint(out, num)
        pack_ints(out, rows, MAX_RUN)
        self.definitions.append(bytes(out))
        return batch
