"""Token ids as pure functions of a key and a position, so that no prompt has to be kept.

A stream is an endless text: the token at a position depends on the stream's key and on that
position alone. Any slice of it can be made at any time, and nothing here depends on a random
generator whose algorithm may change.
"""

from typing import Protocol

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.errors import WorkloadError

TOKEN_LIMIT = 1 << 31
"""Every token id lies in [0, TOKEN_LIMIT)."""

Tokens = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint32]

_WORD_MASK = 0xFFFF_FFFF
_TOKEN_MASK = np.uint32(TOKEN_LIMIT - 1)
_STRIDE = np.uint32(0x9E37_79B9)
_FIRST_FACTOR = np.uint32(0x7FEB_352D)
_SECOND_FACTOR = np.uint32(0x846C_A68B)


class TokenSource(Protocol):
    """Makes the tokens of one request at a time; equal calls give equal arrays."""

    def prompt(self, idx: int) -> Tokens:
        """The prompt of request `idx`, int32 of its prompt length."""

    def output(self, idx: int) -> Tokens:
        """The answer of request `idx`, int32 of its output length."""


@attrs.frozen(kw_only=True, eq=False)
class GivenTokens:
    """A token source for token ids that the caller already holds, one array a request."""

    prompts: tuple[Tokens, ...]
    outputs: tuple[Tokens, ...]

    def __attrs_post_init__(self) -> None:
        for kind, arrays in (("prompt", self.prompts), ("output", self.outputs)):
            for idx, tokens in enumerate(arrays):
                _check_tokens(f"{kind} {idx}", tokens)

    def prompt(self, idx: int) -> Tokens:
        """The prompt of request `idx`."""
        return self.prompts[idx]

    def output(self, idx: int) -> Tokens:
        """The answer of request `idx`."""
        return self.outputs[idx]


def stream_keys(seed: int, label: int, num_streams: int) -> Words:
    """The keys (uint32[num_streams]) of the streams in the family `label` under `seed`.

    Within a family all keys differ, and a longer family begins as a shorter one does.
    """
    keys = np.arange(num_streams, dtype=np.uint32)
    keys ^= np.random.SeedSequence((seed, label)).generate_state(1, np.uint32)
    _mix(keys)
    return keys


def stream_tokens(key: int, start: int, length: int) -> Tokens:
    """Tokens [start, start + length) of a stream, spread over the whole token range.

    Streams of different keys differ as 32-bit words at every position, so two of them share a
    token at one position with a chance of 2^-31.
    """
    words = _stream_words(key, start, length)
    words &= _TOKEN_MASK
    return words.view(np.int32)


def stream_tokens_below(vocab_size: int, key: int, start: int, length: int) -> Tokens:
    """Tokens [start, start + length) of a stream, spread evenly over [0, vocab_size)."""
    wide = _stream_words(key, start, length).astype(np.uint64)
    wide *= np.uint64(vocab_size)
    wide >>= np.uint64(32)
    return wide.astype(np.int32)


def _stream_words(key: int, start: int, length: int) -> Words:
    words = np.arange(start, start + length, dtype=np.uint32)
    words *= _STRIDE
    words += np.uint32(key & _WORD_MASK)
    _mix(words)
    return words


def _mix(words: Words) -> None:
    # Each step can be undone (a shift folded in, a product with an odd number), so different
    # words stay different.
    folded = words >> np.uint32(16)
    words ^= folded
    words *= _FIRST_FACTOR
    np.right_shift(words, np.uint32(15), out=folded)
    words ^= folded
    words *= _SECOND_FACTOR
    np.right_shift(words, np.uint32(16), out=folded)
    words ^= folded


def _check_tokens(name: str, tokens: Tokens) -> None:
    if tokens.dtype != np.int32 or tokens.ndim != 1:
        raise WorkloadError(
            f"{name} is an array of {tokens.dtype} with {tokens.ndim} dimensions; "
            f"token ids are a flat int32 array"
        )
    if tokens.size and int(tokens.min()) < 0:
        raise WorkloadError(
            f"{name} holds token id {int(tokens.min())}; ids lie in [0, {TOKEN_LIMIT})"
        )
