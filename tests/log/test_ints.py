"""Integers and int32 arrays as bytes."""

import numpy as np
import pytest
from hypothesis import given
from log_samples import INT32, arrays, ints

from kvlife.log.cursor import BadBytes, Cursor
from kvlife.log.ints import pack_ints, quick_page_list, unzigzag, varint, zigzag
from kvlife.log.wire import MAX_RUN


def packed(values, run_left=MAX_RUN):
    out = bytearray()
    pack_ints(out, values, run_left)
    return bytes(out)


def unpacked(content, num):
    cursor = Cursor(content, 0, len(content))
    values = cursor.ints(num)
    assert cursor.pos == len(content)
    return values


@pytest.mark.parametrize(
    ("value", "content"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**64 - 1, "ff" * 9 + "01")],
)
def test_a_varint_has_seven_bits_a_byte(value, content):
    """The lowest seven bits come first, and all but the last byte have the high bit."""
    assert varint(value).hex() == content
    assert Cursor(bytes.fromhex(content), 0, len(content) // 2).varint() == value


@pytest.mark.parametrize("content", ["80", "ff" * 10 + "01", "ff" * 9 + "02"])
def test_a_varint_that_ends_early_or_is_too_long_is_refused(content):
    """A number has an end within its bytes, and at most 64 bits."""
    with pytest.raises(BadBytes):
        Cursor(bytes.fromhex(content), 0, len(content) // 2).varint()


@pytest.mark.parametrize(
    ("value", "code"), [(0, 0), (-1, 1), (1, 2), (-2, 3), (2**31 - 1, 2**32 - 2)]
)
def test_zigzag_folds_negative_numbers_in(value, code):
    """0, -1, 1, -2 are 0, 1, 2, 3."""
    assert zigzag(value) == code
    assert unzigzag(code) == value


@pytest.mark.parametrize(
    ("values", "content"),
    [
        ((1, 1, 1), "21"),
        ((5, 5, 5), "200a00"),
        ((7, 8, 9), "200e02"),
        ((9, 8, 7), "201201"),
        ((1, 2), "010102"),
        ((259, 3), "0203030100"),
        ((70000, 1), "03700111000100"),
        ((-1, 5, -1), "11010006" + "00"),
        ((100000, 100001, 100003), "11c09a0c" + "000103"),
    ],
)
def test_arrays_take_the_shortest_of_three_ways(values, content):
    """A run; byte planes, lowest bytes first; or planes above a base."""
    assert packed(ints(*values)).hex() == content
    assert unpacked(bytes.fromhex(content), len(values)).tolist() == list(values)


@given(arrays(-(1 << 31), (1 << 31) - 1, 9))
def test_arrays_come_back(values):
    """Whatever the values, reading gives them back, read-only."""
    back = unpacked(packed(values), values.size)
    assert back.tolist() == values.tolist()
    assert not back.flags.writeable


@given(INT32, INT32)
def test_a_difference_that_wraps_is_no_run(low, high):
    """Values whose differences overflow int32 come back all the same."""
    values = ints(low, high, low, high)
    assert unpacked(packed(values), 4).tolist() == values.tolist()


@pytest.mark.parametrize("num", [600, 5000])
def test_long_arrays_come_back(num):
    """Long arrays are read in one piece by numpy, to the same values."""
    values = (np.arange(num, dtype=np.int32) * 7919) % 100003
    assert unpacked(packed(values), num).tolist() == values.tolist()


def test_long_runs_are_written_out():
    """A few bytes never stand for more values than the format allows."""
    longest = np.arange(MAX_RUN, dtype=np.int32)
    assert len(packed(longest)) == 3
    assert len(packed(np.arange(MAX_RUN + 1, dtype=np.int32))) == 1 + 3 * (MAX_RUN + 1)
    assert len(packed(longest, run_left=10)) == 1 + 2 * MAX_RUN


@given(arrays(0, 70000, 20))
def test_the_quick_page_list_says_the_same(pages):
    """Where the quick way answers, it reads back as the general way's does."""
    quick = quick_page_list(pages, [])
    if quick is not None:
        cursor = Cursor(quick, 0, len(quick))
        assert cursor.ints(cursor.varint()).tolist() == pages.tolist()


def test_the_quick_page_list_by_hand():
    """One byte for none; width and planes for few; a run where each page is the next."""
    assert quick_page_list(ints(), []).hex() == "00"
    assert quick_page_list(ints(3, 258), []).hex() == "02" + "02" + "0302" + "0001"
    assert quick_page_list(ints(4, 5, 6), []).hex() == "03" + "200802"
    assert quick_page_list(ints(4, 4, 6), []) is None
    assert quick_page_list(np.array([1], np.int64), []) is None


@pytest.mark.parametrize(
    ("content", "num", "reason"),
    [
        ("21", 1 << 40, "stands for more than"),
        ("20fcffffff0f02", 3, "leaves int32"),
        ("04000000", 1, "3 are left"),
        ("0f0000", 2, "tag 0xf"),
        ("31", 2, "tag 0x31"),
        ("20", 2, "in the middle"),
    ],
)
def test_hostile_arrays_are_refused(content, num, reason):
    """Lengths that the bytes do not justify, and values out of int32, are errors."""
    content = bytes.fromhex(content)
    with pytest.raises(BadBytes, match=reason):
        Cursor(content, 0, len(content)).ints(num)
