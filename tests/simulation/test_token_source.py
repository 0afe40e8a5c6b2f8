"""Token ids as pure functions of key and position."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlife.errors import WorkloadError
from kvlife.simulation.token_source import (
    GivenTokens,
    stream_keys,
    stream_tokens,
    stream_tokens_below,
)

KEYS = st.integers(0, 2**32 - 1)


def plain_word(key: int, position: int) -> int:
    """The word of a stream at one position, in plain integers."""
    word = (position * 0x9E3779B9 + key) % 2**32
    word = (word ^ (word >> 16)) * 0x7FEB352D % 2**32
    word = (word ^ (word >> 15)) * 0x846CA68B % 2**32
    return word ^ (word >> 16)


@given(key=KEYS, start=st.integers(0, 2**20), length=st.integers(0, 40))
def test_stream_equals_plain_arithmetic(key: int, start: int, length: int) -> None:
    """The arrays hold what the same recipe gives in plain integers, on every machine."""
    words = [plain_word(key, position) for position in range(start, start + length)]
    assert stream_tokens(key, start, length).tolist() == [word % 2**31 for word in words]
    assert stream_tokens_below(128_000, key, start, length).tolist() == [
        word * 128_000 // 2**32 for word in words
    ]


@given(key=KEYS, cut=st.integers(0, 300))
def test_a_stream_is_the_same_in_parts(key: int, cut: int) -> None:
    """Two slices that meet are the slice over both."""
    whole = stream_tokens_below(1000, key, 0, 300)
    parts = stream_tokens_below(1000, key, 0, cut), stream_tokens_below(1000, key, cut, 300 - cut)
    assert np.array_equal(np.concatenate(parts), whole)


def test_tokens_are_int32_within_their_range() -> None:
    """Ids fill their range and stay inside it."""
    wide = stream_tokens(7, 0, 100_000)
    narrow = stream_tokens_below(10, 7, 0, 100_000)
    assert wide.dtype == narrow.dtype == np.int32
    assert wide.min() >= 0
    assert wide.max() > 2**31 - 2**20
    counts = np.bincount(narrow, minlength=10)
    # 10,000 are expected of each, with a standard deviation of 95.
    assert len(counts) == 10
    assert abs(counts - 10_000).max() < 500


def test_keys_differ_and_begin_alike() -> None:
    """A family has no key twice, keeps its keys when it grows, and is not another family."""
    keys = stream_keys(3, 1, 100_000)
    assert len(np.unique(keys)) == 100_000
    assert np.array_equal(stream_keys(3, 1, 10), keys[:10])
    assert not np.isin(stream_keys(3, 2, 10), keys[:10]).any()
    assert not np.isin(stream_keys(4, 1, 10), keys[:10]).any()


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (np.array([1, 2], np.int64), "int64"),
        (np.array([[1, 2]], np.int32), "2 dimensions"),
        (np.array([1, -2], np.int32), "-2"),
    ],
)
def test_given_tokens_are_checked(tokens: np.ndarray, said: str) -> None:
    """Token ids of a wrong shape, type or range are refused with what is wrong."""
    good = np.array([1], np.int32)
    with pytest.raises(WorkloadError, match=said):
        GivenTokens(prompts=(good, tokens), outputs=(good, good))
    with pytest.raises(WorkloadError, match="output 0"):
        GivenTokens(prompts=(good,), outputs=(tokens,))
