"""Token conversion: what is taken, what is refused, and with which words."""

import array

import numpy as np
import pytest

from kvlife.errors import BadTokens
from kvlife.prefix import as_tokens


class Tensor:
    """What is known of a torch tensor: it can be read through `__array__`."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        if self.values is None:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return np.array(self.values, dtype)


@pytest.mark.parametrize(
    "given",
    [
        [5, 0, 2**31 - 1],
        (5, 0, 2**31 - 1),
        [np.int64(5), 0, np.uint32(2**31 - 1)],
        np.array([5, 0, 2**31 - 1], np.int64),
        np.array([5, 0, 2**31 - 1], np.uint64),
        np.array([5, 9, 0, 9, 2**31 - 1, 9], np.int32)[::2],
        array.array("i", [5, 0, 2**31 - 1]),
        array.array("Q", [5, 0, 2**31 - 1]),
        memoryview(array.array("i", [5, 0, 2**31 - 1])),
        Tensor([5, 0, 2**31 - 1]),
    ],
    ids=lambda given: type(given).__name__,
)
def test_takes_integers_in_any_buffer(given):
    """Every kind of buffer of integers becomes the same contiguous int32 array."""
    tokens = as_tokens(given)
    assert tokens.dtype == np.int32
    assert tokens.flags.c_contiguous
    assert tokens.tolist() == [5, 0, 2147483647]


@pytest.mark.parametrize("given", [[], (), np.zeros(0, np.int64), array.array("i")])
def test_empty_is_left_to_the_caller(given):
    """No tokens are still tokens, of the right type."""
    tokens = as_tokens(given)
    assert tokens.dtype == np.int32
    assert tokens.shape == (0,)


def test_does_not_copy_what_fits():
    """A contiguous int32 array is handed back itself, a buffer of int32 is shared."""
    fits = np.arange(4, dtype=np.int32)
    shared = array.array("i", [1, 2])
    assert as_tokens(fits) is fits
    tokens = as_tokens(shared)
    shared[0] = 7
    assert tokens.tolist() == [7, 2]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([1, 2, -3], "token 2 is -3"),
        ([1, 2**31], "token 1 is 2147483648"),
        ([1, 2**80], f"token 1 is {2**80}"),
        ([1, -(2**80)], f"token 1 is -{2**80}"),
        (np.array([0, -1], np.int32), "token 1 is -1"),
        (np.array([0, 2**31], np.int64), "token 1 is 2147483648"),
        (np.array([2**63, 0], np.uint64), "token 0 is 9223372036854775808"),
        ([1, True], "token 1 is True of type bool"),
        ([1, 2.0], "token 1 is 2.0 of type float"),
        (["a"], "token 0 is 'a' of type str"),
        ([1, None], "token 1 is None"),
        ([[1, 2]], r"token 0 is \[1, 2\] of type list"),
        (np.array([1.0]), "dtype float64 were given, token 0 is"),
        (np.array([True]), "dtype bool"),
        (array.array("f", [1.0]), "dtype float32"),
        (np.zeros((2, 2), np.int32), r"shape \(2, 2\)"),
        (np.int32(3), r"shape \(\)"),
        (Tensor(None), "Tensor cannot be read as an array"),
        ("tokens", "type str were given"),
        (7, "type int were given"),
        (None, "type NoneType were given"),
    ],
)
def test_refuses_the_rest_by_name(given, says):
    """Whatever is no token is refused, and the message says which and why."""
    with pytest.raises(BadTokens, match=says):
        as_tokens(given)
