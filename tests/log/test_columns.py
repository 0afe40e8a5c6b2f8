"""Columns of snapshots: the bytes by hand, any integers there and back, and bytes that lie."""

import json
import zlib

import attrs
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_samples import LAYOUT

from kvlife.errors import LogCorrupt
from kvlife.ledger import FrozenState
from kvlife.log import snapshot_file
from kvlife.log.columns import BLOCK, Column, check_size, describe, pieces, read_column
from kvlife.log.snapshot_file import SnapshotHead, read_snapshot, write_snapshot
from kvlife.log.weighing import check_values
from kvlife.log.wire import CRC, SNAPSHOT_HEAD, SNAPSHOT_MAGIC, SNAPSHOT_VERSION

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


def test_marks_beyond_their_type_are_refused():
    """Place 127 is the last that an int8 can name; 128 would come out as -128."""
    column = Column(name="a", dtype="|i1", shape=(1,), coding="marks", width=128)
    assert read_column(column, bytes(15) + b"\x80", 0).tolist() == [127]
    column.width = 129
    with pytest.raises(ValueError, match=r"129 bits for \|i1"):
        read_column(column, bytes(16) + b"\x01", 0)


def forged(path, table, content=b""):
    """A snapshot file of this table and content, whose checksums fit."""
    raw = CRC.pack(len(table)) + table + content
    head = (0, 0, 0, 0, 0, 0, len(raw), len(raw), zlib.crc32(raw))
    head = SNAPSHOT_HEAD.pack(SNAPSHOT_MAGIC, SNAPSHOT_VERSION, *head)
    path.write_bytes(head + CRC.pack(zlib.crc32(head)) + raw)
    return path


def table_of(*columns):
    told = [{"name": "a", "dtype": "<i4", "shape": [0]} | column for column in columns]
    return json.dumps({"arrays": told, "meta_bytes": 0}).encode()


@pytest.mark.parametrize(
    "columns",
    [
        # A width below 0 would make room for what no bytes justify: 256 GiB.
        [
            {"shape": [1 << 36], "coding": "planes", "base": 5},
            {"coding": "marks", "width": -(1 << 50)},
        ],
        # The product of these takes minutes.
        [{"shape": [1 << 62] * 50_000 + [0]}],
        [{"shape": [10**4000]}],
        # What numpy takes for types, and evaluates.
        [{"dtype": "i4,("}],
        [{"dtype": "1" * 5000 + "i4"}],
        [{"dtype": "i4," * 100_000}],
        [{"dtype": "(3,)i4"}],
        [{"dtype": "<U4"}],
        [{"dtype": "O"}],
    ],
)
def test_a_table_that_lies_is_refused(tmp_path, columns):
    """At once, as corruption, whatever its checksums say."""
    path = forged(tmp_path / "a.snap", table_of(*columns))
    with pytest.raises(LogCorrupt, match=r"a\.snap: the table of columns"):
        read_snapshot(path, LAYOUT)


def test_a_table_of_a_million_columns_is_refused(tmp_path):
    """A real one has some hundreds, and every column costs more than the bytes that name it."""
    path = forged(tmp_path / "a.snap", table_of(*({"name": str(k)} for k in range(30_000))))
    with pytest.raises(LogCorrupt, match=r"a\.snap: the table of columns"):
        read_snapshot(path, LAYOUT)


def test_values_are_counted_as_they_lie():
    """Each list, map, text and number of every width is a value, and so are keys of maps."""
    one = [
        None, True, 1.5, -1, -100, -1000, -100_000, -(1 << 40), 1, 200, 60_000, 70_000, 1 << 40,
        "", "a" * 31, "b" * 32, "c" * 256, "d" * 65_536, b"e", b"f" * 256, b"g" * 65_536,
        {"h": []}, {str(k): k for k in range(16)}, [[]] * 15, [[]] * 16, [[]] * 65_536,
    ]  # fmt: skip
    # 21 that stand alone; a map with a key and a list in it; a map with 16 keys and 16 numbers;
    # three lists with theirs; and `one` itself.
    num = 21 + 3 + 33 + (1 + 15) + (1 + 16) + (1 + 65_536) + 1
    packed = msgspec.msgpack.encode([one] * 20)
    check_values(packed, 20 * num + 1, "a.snap")
    with pytest.raises(LogCorrupt, match=rf"a\.snap: more than {20 * num} values"):
        check_values(packed, 20 * num, "a.snap")


@pytest.mark.parametrize("packed", [b"\x90", b"\x92\xc0\xc0"])
def test_books_of_millions_of_values_are_refused(tmp_path, packed):
    """They take some twenty times their bytes in memory, and compress to nothing."""
    books = packed * (3 << 20)
    table = json.dumps({"arrays": [], "meta_bytes": len(books)}).encode()
    path = forged(tmp_path / "a.snap", table, books)
    with pytest.raises(LogCorrupt, match=r"a\.snap: more than 10\d{5} values in the books"):
        read_snapshot(path, LAYOUT)


NO_HEAD = SnapshotHead(**dict.fromkeys(attrs.fields_dict(SnapshotHead), 0))


@pytest.mark.parametrize(("limit", "version"), [(1279, 1), (1280, 2)])
def test_what_is_written_can_be_read(tmp_path, monkeypatch, limit, version):
    """256 ids of 4 bytes come from marks of 256 bits, a byte each on the way: 1,280 in all."""
    monkeypatch.setattr(snapshot_file, "max_raw_bytes", lambda _layout: limit)
    path = tmp_path / "a.snap"
    state = FrozenState({"idx": np.arange(256, dtype=np.int32)}, b"", 0)
    with path.open("wb") as file:
        write_snapshot(file, state, NO_HEAD, LAYOUT, tick=lambda: None)
    assert SNAPSHOT_HEAD.unpack_from(path.read_bytes())[1] == version
    _, back = read_snapshot(path, LAYOUT)
    assert back.arrays["idx"].tolist() == list(range(256))
