"""Integers and int32 arrays as bytes: varints, byte planes, arithmetic runs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kvlife.log.wire import MAX_RUN, OFFSET_PLANES, ONES, PLANES, RUN

I32 = npt.NDArray[np.int32]

_INT32 = np.dtype(np.int32)


def put_varint(out: bytearray, value: int) -> None:
    """Seven bits a byte, lowest first, the high bit set on all but the last."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def varint(value: int) -> bytes:
    """One varint as bytes."""
    out = bytearray()
    put_varint(out, value)
    return bytes(out)


def zigzag(value: int) -> int:
    """0, -1, 1, -2, ... as 0, 1, 2, 3, ..."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def unzigzag(value: int) -> int:
    """The inverse of `zigzag`."""
    return -((value + 1) >> 1) if value & 1 else value >> 1


def require_int32(values: object) -> None:
    """Raise `TypeError` unless `values` is a one-dimensional int32 array."""
    if not isinstance(values, np.ndarray) or values.dtype != _INT32 or values.ndim != 1:
        raise TypeError(f"wanted an int32 array of one dimension, got {values!r}")


def pack_ints(out: bytearray, values: I32, run_left: int) -> int:
    """Write the values of an array that is not empty; its length stands elsewhere.

    A run is written where at most `run_left` values may still stand in runs. Returns how many of
    them this array took.
    """
    num = values.size
    if num == 1:
        return _pack_one(out, int(values[0]), run_left)
    low, high = int(values.min()), int(values.max())
    if num <= min(run_left, MAX_RUN) and _put_run(out, values, low, high):
        return num
    plain = _width(high) if low >= 0 else 4
    offset = _width(high - low)
    if offset < plain:
        out.append(OFFSET_PLANES | offset)
        put_varint(out, zigzag(low))
        values, plain = values - np.int32(low), offset
    else:
        out.append(PLANES | plain)
    out += _planes(values, plain)
    return 0


def _pack_one(out: bytearray, value: int, run_left: int) -> int:
    """As `pack_ints` for one value, which takes no array operation."""
    if value == 1 and run_left >= 1:
        out.append(ONES)
        return 1
    if 0 <= value <= 0xFF:
        out += bytes((PLANES | 1, value))
    else:
        out.append(OFFSET_PLANES | 1)
        put_varint(out, zigzag(value))
        out.append(0)
    return 0


def _put_run(out: bytearray, values: I32, low: int, high: int) -> bool:
    if low == high == 1:
        out.append(ONES)
        return True
    num = values.size
    step = int(values[1]) - int(values[0]) if num > 2 else 0
    # An int32 difference may wrap, but then high - low is no multiple of the step.
    if num < 3 or high - low != abs(step) * (num - 1) or (values[1:] - values[:-1] != step).any():
        return False
    out.append(RUN)
    put_varint(out, zigzag(int(values[0])))
    put_varint(out, zigzag(step))
    return True


def _width(value: int) -> int:
    return max(1, (value.bit_length() + 7) >> 3)


def _planes(values: I32, width: int) -> bytes:
    grid = np.ascontiguousarray(values).view(np.uint8).reshape(-1, 4)
    return grid[:, :width].T.tobytes()


def from_planes(content: bytes, pos: int, num: int, width: int) -> I32:
    """A read-only array from its byte planes; the caller has checked that they are present."""
    if width == 1:
        values: I32 = np.frombuffer(content, np.uint8, num, pos).astype(np.int32)
    else:
        # Slices of bytes are faster than numpy's way from planes to values.
        raw = bytearray(4 * num)
        for plane in range(width):
            raw[plane::4] = content[pos : pos + num]
            pos += num
        values = np.frombuffer(raw, np.int32)
    values.setflags(write=False)
    return values


_QUICK_PAGES = 4096
_PAGE_HEADS = tuple(
    tuple(varint(num) + bytes((PLANES | width,)) for num in range(257)) for width in range(5)
)


_UNIT_STEPS = {1: varint(zigzag(1)), -1: varint(zigzag(-1))}
_RUN_HEADS = tuple(varint(num) + bytes((RUN,)) for num in range(257))


def _quick_run(raw: bytes, num: int, step: int) -> bytes | None:
    """A page list that may go up or down by one each; None where it does not all the way."""
    first = int.from_bytes(raw[:4], "little")
    if np.arange(first, first + step * num, step, dtype=np.int32).tobytes() != raw:
        return None
    return _RUN_HEADS[num] + varint(first << 1) + _UNIT_STEPS[step]


def quick_page_list(pages: I32, noted: list[bytes]) -> bytes | None:
    """A page list of at most 4,096 entries, in byte planes; None where `pack_ints` shall do it.

    Slices of bytes find the width without a look at the values, which takes numpy much longer. The
    pages as bytes are added to `noted`.
    """
    num = pages.size
    if not num:
        return b"\0"
    if num > _QUICK_PAGES or pages.dtype is not _INT32:
        return None
    raw = pages.tobytes()
    noted.append(raw)
    if num > 2:
        rise = int.from_bytes(raw[-4:], "little") - int.from_bytes(raw[:4], "little")
        if rise == num - 1 or rise == 1 - num:
            return _quick_run(raw, num, 1 if rise > 0 else -1) if num <= 256 else None
    zeros = bytes(num)
    low, second, third, top = raw[0::4], raw[1::4], raw[2::4], raw[3::4]
    width = 4
    if top == zeros:
        width = 3
        if third == zeros:
            width = 1 if second == zeros else 2
    head = _PAGE_HEADS[width][num] if num <= 256 else varint(num) + bytes((PLANES | width,))
    if width == 2:
        return head + low + second
    return head + b"".join((low, second, third, top)[:width])
