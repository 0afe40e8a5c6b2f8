"""Reading bytes that may be hostile: every step is checked against what is present."""

from __future__ import annotations

import numpy as np

from kvlife.errors import LogError
from kvlife.log.ints import I32, from_planes, unzigzag
from kvlife.log.wire import MAX_RUN_TOTAL, OFFSET_PLANES, ONES, PLANES, RUN


class BadBytes(LogError):
    """Bytes that cannot be what the format says; whoever knows file and offset adds them."""


class Cursor:
    """A position in bytes. `run_left` bounds what may be made from few bytes."""

    __slots__ = ("content", "end", "pos", "run_left")

    def __init__(self, content: bytes, pos: int, end: int) -> None:
        self.content = content
        self.pos = pos
        self.end = end
        self.run_left = MAX_RUN_TOTAL

    def byte(self) -> int:
        """The next byte."""
        pos = self.pos
        if pos >= self.end:
            raise BadBytes("the record ends in the middle of a field")
        self.pos = pos + 1
        return self.content[pos]

    def take(self, num: int) -> int:
        """Step over `num` bytes; returns where they begin."""
        pos = self.pos
        if num > self.end - pos:
            raise BadBytes(f"a field of {num} bytes where {self.end - pos} are left")
        self.pos = pos + num
        return pos

    def varint(self) -> int:
        """An unsigned number below 2^64."""
        pos = self.pos
        if pos < self.end and self.content[pos] < 0x80:
            self.pos = pos + 1
            return self.content[pos]
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise BadBytes("a number of more than 64 bits")
        if value >> 64:
            raise BadBytes("a number of more than 64 bits")
        return value

    def int32(self) -> int:
        """A signed number of 32 bits."""
        value = unzigzag(self.varint())
        if not -(1 << 31) <= value < 1 << 31:
            raise BadBytes(f"{value} is no int32")
        return value

    def flag(self) -> bool:
        """A byte that is 0 or 1."""
        value = self.byte()
        if value > 1:
            raise BadBytes(f"a flag is 0 or 1, not {value}")
        return value == 1

    def spend(self, num: int) -> None:
        """Count `num` values that stand for no bytes of their own."""
        self.run_left -= num
        if self.run_left < 0:
            raise BadBytes(f"a record that stands for more than {MAX_RUN_TOTAL} values")

    def ints(self, num: int) -> I32:
        """A read-only int32 array of `num` values, of which the length stood elsewhere."""
        if not num:
            return _NONE
        tag = self.byte()
        if tag == ONES:
            return self._run(num, 1, 0)
        if tag == RUN:
            start = self.int32()
            return self._run(num, start, self.int32())
        width = tag & 0x0F
        if not 1 <= width <= 4 or tag - width not in (PLANES, OFFSET_PLANES):
            raise BadBytes(f"no array is written under the tag {tag:#x}")
        base = self.int32() if tag >= OFFSET_PLANES else 0
        values = from_planes(self.content, self.take(num * width), num, width)
        if base:
            values = values + np.int32(base)
            values.setflags(write=False)
        return values

    def _run(self, num: int, start: int, step: int) -> I32:
        self.spend(num)
        last = start + step * (num - 1)
        if not -(1 << 31) <= last < 1 << 31:
            raise BadBytes(f"a run from {start} by {step} leaves int32 after {num} values")
        values = np.arange(num, dtype=np.int32)
        values *= np.int32(step)
        values += np.int32(start)
        values.setflags(write=False)
        return values


_NONE: I32 = np.empty(0, np.int32)
_NONE.setflags(write=False)
