"""Columns of a snapshot, in no more bytes than their values need: planes, or marks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from kvlife.errors import LogCorrupt

AnyArray = npt.NDArray[Any]  # Any: a state has arrays of several dtypes
U8 = npt.NDArray[np.uint8]
Coding = Literal["plain", "planes", "marks"]

# What a file may say; numpy takes a type's name for more than that, and evaluates it.
_Type = Annotated[str, msgspec.Meta(pattern=r"^[<>|][biuf][0-9]{1,2}\Z")]
_Extent = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Shape = Annotated[tuple[_Extent, ...], msgspec.Meta(max_length=32)]

# Values that are coded together; each block but a column's last has as many.
BLOCK = 1 << 15
# A shorter column is stored as it is.
_LEAST_CODED = 256


class Column(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How a column stands in the content.

    "plain": as numpy writes it. "planes": blocks of up to 32,768 values, each less `base` and of
    `width` bits: the planes of their whole low bytes, then one of bits for each bit above those.
    "marks": `width` bits; the values are the places of the ones, rising.
    """

    name: str
    dtype: _Type
    shape: _Shape
    coding: Coding = "plain"
    base: int = 0
    width: _Extent = 0

    @property
    def num_values(self) -> int:
        """How many values the shape has; `ValueError` where it is none."""
        num = 1
        for extent in self.shape:
            if extent < 0:
                raise ValueError(f"an extent of {extent}")
            num *= extent
        return num

    @property
    def num_bytes(self) -> int:
        """How many bytes stand in the content."""
        if self.coding == "plain":
            return self.num_values * np.dtype(self.dtype).itemsize
        if self.coding == "marks":
            return _in_bytes(self.width)
        whole, rest = divmod(self.num_values, BLOCK)
        return whole * _block_bytes(BLOCK, self.width) + _block_bytes(rest, self.width)


def _in_bytes(num_bits: int) -> int:
    return -(-num_bits // 8)


def _block_bytes(num: int, width: int) -> int:
    return width // 8 * num + width % 8 * _in_bytes(num)


def describe(name: str, array: AnyArray) -> Column:
    """Choose the coding that takes the fewest bytes."""
    plain = Column(name=name, dtype=array.dtype.str, shape=array.shape)
    if array.size < _LEAST_CODED or array.dtype.kind not in "iu":
        return plain
    least, most = int(array.min()), int(array.max())
    choice = [
        plain,
        msgspec.structs.replace(
            plain, coding="planes", base=least, width=(most - least).bit_length()
        ),
    ]
    if least >= 0 and array.ndim == 1 and most < choice[1].num_bytes * 8 and _rises(array):
        choice.append(msgspec.structs.replace(plain, coding="marks", width=most + 1))
    return min(choice, key=lambda column: column.num_bytes)


def _rises(array: AnyArray) -> bool:
    return bool((array[1:] > array[:-1]).all())


def pieces(column: Column, array: AnyArray) -> Iterator[bytes | memoryview]:
    """The bytes of a column, none of the pieces longer than a MiB but for marks."""
    values = array.reshape(-1)
    if column.coding == "marks":
        marks = np.zeros(column.width, np.bool_)
        marks[values] = True
        yield np.packbits(marks, bitorder="little").data
        return
    for start in range(0, values.size, BLOCK):
        block = values[start : start + BLOCK]
        yield block.view(np.uint8).data if column.coding == "plain" else _planes(block, column)


def _planes(block: AnyArray, column: Column) -> bytes:
    unsigned = block.view(f"<u{block.itemsize}")
    above = unsigned - unsigned.dtype.type(column.base % (1 << 8 * block.itemsize))
    by_value = above.view(np.uint8).reshape(block.size, block.itemsize)
    whole, rest = divmod(column.width, 8)
    planes: bytes = by_value[:, :whole].T.tobytes()
    if rest:
        bits = np.unpackbits(by_value[:, whole], bitorder="little").reshape(-1, 8)
        planes += np.packbits(bits[:, :rest].T, axis=1, bitorder="little").tobytes()
    return planes


def read_column(column: Column, raw: bytes, pos: int) -> AnyArray:
    """The column whose bytes begin at `pos`; `ValueError` where they are none of its coding."""
    dtype, num = np.dtype(column.dtype), column.num_values
    if column.coding == "plain":
        return np.frombuffer(raw, dtype, num, pos).reshape(column.shape)
    if dtype.kind not in "iu" or column.width < 0:
        raise ValueError(f"{column.coding} of {column.dtype} and {column.width} bits")
    most_bits = np.iinfo(dtype).max + 1 if column.coding == "marks" else 8 * dtype.itemsize
    if column.width > most_bits:
        raise ValueError(f"{column.width} bits for {column.dtype}")
    if column.coding == "marks":
        marks = np.frombuffer(raw, np.uint8, column.num_bytes, pos)
        bits = np.unpackbits(marks, bitorder="little")
        # Counted first: each mark becomes a number of eight bytes.
        num_marks = int(np.count_nonzero(bits))
        if num_marks != num or bits[column.width :].any():
            raise ValueError(f"{num_marks} marks for {num} values")
        values = np.flatnonzero(bits)
        return values.astype(dtype).reshape(column.shape)
    unsigned = np.zeros(num, f"<u{dtype.itemsize}")
    by_value = unsigned.view(np.uint8).reshape(num, dtype.itemsize)
    for start in range(0, num, BLOCK):
        block = by_value[start : start + BLOCK]
        size = _block_bytes(len(block), column.width)
        _from_planes(block, np.frombuffer(raw, np.uint8, size, pos), column.width)
        pos += size
    unsigned += unsigned.dtype.type(column.base % (1 << 8 * dtype.itemsize))
    return unsigned.view(dtype).reshape(column.shape)


def _from_planes(block: U8, planes: U8, width: int) -> None:
    num, (whole, rest) = len(block), divmod(width, 8)
    block[:, :whole] = planes[: whole * num].reshape(whole, num).T
    if rest:
        by_bit = planes[whole * num :].reshape(rest, -1)
        bits = np.unpackbits(by_bit, axis=1, count=num, bitorder="little")
        high = bits[0]
        for place in range(1, rest):
            high |= bits[place] << np.uint8(place)
        block[:, whole] = high


def unfolded_bytes(columns: list[Column]) -> int:
    """How many bytes it takes to unfold those columns that are not plain."""
    return sum(
        # Marks are unfolded to a byte each on the way.
        column.num_values * np.dtype(column.dtype).itemsize
        + (column.width if column.coding == "marks" else 0)
        for column in columns
        if column.coding != "plain"
    )


def check_size(columns: list[Column], limit: int, where: str) -> None:
    """Refuse columns that would take more than `limit` bytes where their coding unfolds them."""
    unfolded = unfolded_bytes(columns)
    if unfolded > limit:
        raise LogCorrupt(f"{where}: columns of {unfolded} bytes, too many for this pool")
