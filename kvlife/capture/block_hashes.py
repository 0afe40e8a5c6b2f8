"""vLLM's block hashes, computed again from the tokens: a chain, one hash for each full block.

A hash is SHA-256 over the canonical CBOR (RFC 8949) of `[parent hash, [token ids], null]`; the
parent of the first block is the header's `none_hash`. Captures have the first 8 bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

RECOMPUTED = "sha256_cbor"

_BYTES, _ARRAY = 2, 4
_NULL = b"\xf6"


def _cbor_head(major: int, value: int) -> bytes:
    """The shortest head: a major type and an unsigned number below 2^32."""
    kind = major << 5
    if value < 24:
        return bytes((kind | value,))
    if value < 1 << 8:
        return bytes((kind | 24, value))
    if value < 1 << 16:
        return bytes((kind | 25,)) + value.to_bytes(2)
    return bytes((kind | 26,)) + value.to_bytes(4)


def block_hash(parent: bytes, tokens: list[int]) -> bytes:
    """The hash of a block of tokens below 2^32, after the block with the hash `parent`."""
    parts = [_cbor_head(_ARRAY, 3), _cbor_head(_BYTES, len(parent)), parent]
    parts.append(_cbor_head(_ARRAY, len(tokens)))
    parts += [_cbor_head(0, token) for token in tokens]
    parts.append(_NULL)
    return hashlib.sha256(b"".join(parts)).digest()


class HashChain:
    """The hashes of one request's full blocks, as captures write them, and its length in tokens."""

    def __init__(self, none_hash: bytes, block_size: int) -> None:
        """No token yet."""
        self._parent = none_hash
        self._block_size = block_size
        self._rest: list[int] = []
        self.num_tokens = 0
        self.hashes: list[str] = []

    def extend(self, tokens: Iterable[int]) -> None:
        """More tokens; each block that they fill gets its hash."""
        self._rest.extend(tokens)
        size = self._block_size
        self.num_tokens = len(self.hashes) * size + len(self._rest)
        while len(self._rest) >= size:
            self._parent = block_hash(self._parent, self._rest[:size])
            del self._rest[:size]
            self.hashes.append(self._parent[:8].hex())
