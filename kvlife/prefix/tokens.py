"""Turning what callers hold into token buffers, exactly or not at all."""

import array
import operator
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from kvlife.errors import BadTokens

TOKEN_LIMIT = 2**31


@runtime_checkable
class ArrayLike(Protocol):
    """What numpy can read as an array: a torch tensor on the CPU, for one."""

    def __array__(self) -> npt.NDArray[np.generic]:
        """Return the contents."""
        ...


TokensLike = ArrayLike | memoryview | Sequence[int]


def as_tokens(tokens: TokensLike) -> npt.NDArray[np.int32]:
    """Return tokens as a contiguous one-dimensional int32 array; no copy where they are one.

    Takes numpy arrays, `array.array`, memoryviews, torch tensors on the CPU, lists and tuples,
    of integers in [0, 2**31). Raises BadTokens, naming index and value, for anything else.
    """
    if isinstance(tokens, (list, tuple)):
        return _from_sequence(tokens)
    if not isinstance(tokens, (np.ndarray, array.array, memoryview, ArrayLike)):
        msg = (
            f"tokens of type {type(tokens).__name__} were given: give a one-dimensional buffer "
            "of integers (numpy, array, torch), or a list of int"
        )
        raise BadTokens(msg)
    return _from_array(_read(tokens))


def _read(tokens: TokensLike) -> npt.NDArray[np.generic]:
    if isinstance(tokens, np.ndarray):
        return tokens
    try:
        return np.asarray(tokens)
    except Exception as cause:  # `__array__` is the caller's, and may raise anything
        msg = (
            f"tokens of type {type(tokens).__name__} cannot be read as an array ({cause}): "
            "give a one-dimensional buffer of integers in host memory"
        )
        raise BadTokens(msg) from cause


def _from_array(values: npt.NDArray[np.generic]) -> npt.NDArray[np.int32]:
    if values.ndim != 1:
        msg = f"tokens of shape {values.shape} were given: give one dimension, one prompt at a time"
        raise BadTokens(msg)
    if values.dtype.kind not in "iu":
        first = f", token 0 is {values[0]!r}" if len(values) else ""
        msg = f"tokens of dtype {values.dtype} were given{first}: give integers in [0, 2**31)"
        raise BadTokens(msg)
    whole: npt.NDArray[np.integer[Any]] = values  # type: ignore[assignment]  # its kind says so
    if len(whole) and (whole.min() < 0 or _exceeds(whole)):
        index = int(((whole < 0) | (whole >= TOKEN_LIMIT)).argmax())
        raise _out_of_range(index, int(whole[index]))
    return np.ascontiguousarray(whole, np.int32)


def _exceeds(values: npt.NDArray[np.integer[Any]]) -> bool:
    # What fits in int32 needs no second pass.
    return values.dtype != np.int32 and bool(values.max() >= TOKEN_LIMIT)


def _from_sequence(values: Sequence[object]) -> npt.NDArray[np.int32]:
    # One pass over the types first: numpy would take True for 1, and 2.0 for 2, without a word.
    if not set(map(type, values)) <= {int}:
        for index, value in enumerate(values):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                msg = (
                    f"token {index} is {value!r} of type {type(value).__name__}: "
                    "give integers in [0, 2**31)"
                )
                raise BadTokens(msg)
    try:
        return _from_array(np.array(values, np.int64))
    except OverflowError:
        whole = [operator.index(value) for value in values]  # type: ignore[arg-type]  # as above
        index = next(i for i, value in enumerate(whole) if not 0 <= value < TOKEN_LIMIT)
        raise _out_of_range(index, whole[index]) from None


def _out_of_range(index: int, value: object) -> BadTokens:
    return BadTokens(f"token {index} is {value}: tokens lie in [0, 2**31)")
