"""Columns of snapshots: the bytes by hand, any integers there and back, and bytes that lie."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlife.errors import LogCorrupt
from kvlife.log.columns import BLOCK, Column, check_size, describe, pieces, read_column

INTEGERS = ("|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8")


def content(column, array):
    """The bytes of a column, which are as many as it says."""
    whole = b"".join(bytes(piece) for piece in pieces(column, array))
    assert len(whole) == column.num_bytes
    return whole


def test_planes_by_hand():
    """0, 1 and 515 above 1,000 take a byte each, and their bits 8 and 9 a byte for the three."""
    array = np.array([1000, 1001, 1515], np.int32)
    column = Column(name="a", dtype="<i4", shape=(3,), coding="planes", base=1000, width=10)
    assert content(column, array) == bytes([0, 1, 3, 0b000, 0b100])
    assert read_column(column, bytes([9, 0, 1, 3, 0, 4]), 1).tolist() == [1000, 1001, 1515]


def test_negative_values_by_hand():
    """-2 and 1, from -2 on: 0 and 3."""
    column = Column(name="a", dtype="|i1", shape=(2,), coding="planes", base=-2, width=2)
    assert content(column, np.array([-2, 1], np.int8)) == bytes([0b10, 0b10])
    assert read_column(column, bytes([2, 2]), 0).tolist() == [-2, 1]


def test_marks_by_hand():
    """Bits 0, 3 and 9."""
    column = Column(name="a", dtype="<i4", shape=(3,), coding="marks", width=10)
    assert content(column, np.array([0, 3, 9], np.int32)) == bytes([0b1001, 0b10])
    assert read_column(column, bytes([9, 2]), 0).tolist() == [0, 3, 9]


def test_a_million_pages_by_hand():
    """What the columns of a full pool take: 20 bits an id, 1 where all pages are named in order."""
    rng = np.random.default_rng(0)
    some, every = rng.permutation(1 << 20), np.arange(1 << 20)
    assert describe("link", some.astype(np.int32)).num_bytes == (1 << 20) * 20 // 8
    assert describe("idx", every.astype(np.int32)).num_bytes == (1 << 20) // 8
    assert describe("pins", np.zeros(1 << 20, np.int32)).num_bytes == 0
    keys = rng.integers(0, 2**64, 1 << 20, np.uint64)
    assert describe("key", keys).coding == "plain"


@given(
    dtype=st.sampled_from(INTEGERS),
    num=st.sampled_from([0, 1, 255, 256, 263, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 9]),
    data=st.data(),
)
def test_any_integers_come_back(dtype, num, data):
    """Whatever range the values have: the same values, of the same type, in no more bytes."""
    info = np.iinfo(dtype)
    least = data.draw(st.integers(int(info.min), int(info.max)))
    most = data.draw(st.integers(least, int(info.max)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    array = rng.integers(least, most, num, dtype, endpoint=True)
    if data.draw(st.booleans()):
        array = np.unique(array)
    column = describe("a", array)
    assert column.num_bytes <= array.nbytes
    again = msgspec.json.decode(msgspec.json.encode(column), type=Column)
    back = read_column(again, content(column, array), 0)
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)


@pytest.mark.parametrize(
    "lie",
    [
        {"coding": "planes", "width": 33},
        {"coding": "planes", "width": -8},
        {"coding": "planes", "dtype": "<f4", "width": 8},
        {"coding": "marks", "width": 64},
        {"coding": "marks", "width": 10},
        {"coding": "marks", "width": -8},
        {"coding": "marks", "dtype": "|b1", "width": 8},
        {"coding": "planes", "shape": (-1, -300), "width": 8},
    ],
)
def test_a_column_that_lies_is_refused(lie):
    """A width that the type does not have, marks that are not as many as the values, ..."""
    told = {"name": "a", "dtype": "<i4", "shape": (300,)} | lie
    with pytest.raises(ValueError, match=r"bits|marks|extent"):
        read_column(Column(**told), bytes(b"\x0f\xff" * 1000), 0)


def test_values_of_no_bytes_are_held_to_the_pools_size():
    """A column of 2^50 times one number stands in no byte, and is refused before it is made."""
    column = Column(name="a", dtype="<i4", shape=(1 << 50,), coding="planes", base=5)
    assert column.num_bytes == 0
    with pytest.raises(LogCorrupt, match=r"here: columns of 4503599627370496 bytes, too many"):
        check_size([column], 1 << 30, "here")


def test_marks_are_held_to_the_pools_size():
    """Marks of 2^40 bits, for no value, are refused before they are unfolded."""
    column = Column(name="a", dtype="<i4", shape=(0,), coding="marks", width=1 << 40)
    with pytest.raises(LogCorrupt, match="too many for this pool"):
        check_size([column], 1 << 30, "here")
