"""Page keys: 64-bit names of content, chained from page to page, under a secret seed."""

import hashlib
import secrets

import numpy as np
import numpy.typing as npt

from kvlife.errors import ConfigError

Keys = npt.NDArray[np.uint64]

MASK = (1 << 64) - 1
BLOCK_PAGES = 1024
"""Pages that one round of array operations names; it bounds the tables of powers."""


class PageKeys:
    """Names pages by all tokens up to their end.

    With a secret odd multiplier m, and h_i the hash of page i alone, K_i = m * K_(i-1) + h_i
    modulo 2**64, where K before the first page is `initial(namespace)`. A page's hash sums its
    words (two tokens each, the first one in the low half; one token where the page size is odd),
    each spread over 64 bits first, under a secret odd factor per offset. A key is never
    0, which stands for "not published": 0 becomes 1. Keys name content in a log and are compared
    there; nobody is handed pages because keys are equal.
    """

    def __init__(self, seed: int | None, page_size: int) -> None:
        """Draw the constants from the seed; None makes a seed of 128 random bits.

        Raises ConfigError for a negative seed and for a page size below 1.
        """
        if page_size < 1 or (seed is not None and seed < 0):
            msg = (
                f"page keys of seed {seed} for pages of {page_size} tokens were asked for: "
                "give a seed of at least 0, or None, and at least one token a page"
            )
            raise ConfigError(msg)
        secret = secrets.randbits(128) if seed is None else seed
        self._page_size = page_size
        self._secret = hashlib.blake2b(
            secret.to_bytes(secret.bit_length() // 8 + 1, "little"), digest_size=32
        ).digest()
        # The raw stream of a bit generator is the same in every version of numpy.
        words = page_size if page_size & 1 else page_size // 2
        drawn = np.random.PCG64(secret).random_raw(3 + words).astype(np.uint64) | np.uint64(1)
        self._multiplier = int(drawn[0])
        self._spread, self._offset = drawn[1], drawn[2]
        self._factors: Keys = drawn[3:]
        self._powers: Keys = np.ones(1, np.uint64)
        self._inverses: Keys = np.ones(1, np.uint64)

    def initial(self, namespace: bytes) -> int:
        """Return the key before the first page of a namespace."""
        digest = hashlib.blake2b(
            self._page_size.to_bytes(4, "little") + namespace,
            key=self._secret,
            digest_size=8,
            person=b"namespace",
        ).digest()
        return int.from_bytes(digest, "little") or 1

    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits that are equal for equal seeds, and do not reveal them."""
        return hashlib.blake2b(key=self._secret, digest_size=8, person=b"fingerprint").hexdigest()

    def extend(self, tokens: npt.NDArray[np.int32], previous_key: int) -> Keys:
        """Return the key of each whole page of `tokens`, which follow the page of `previous_key`.

        The pages of a prompt may be named at once or call by call, with the same keys.
        """
        num_pages = len(tokens) // self._page_size
        keys = np.empty(num_pages, np.uint64)
        done = 0
        while done < num_pages:
            until = min(num_pages, done + BLOCK_PAGES)
            piece = tokens[done * self._page_size : until * self._page_size]
            block = self._chain(self._page_hashes(piece), previous_key)
            if not block.all():
                # The page after a key of 0 is chained to the 1 that stands in its place.
                block = block[: int((block == 0).argmax()) + 1]
                block[-1] = 1
            keys[done : done + len(block)] = block
            done += len(block)
            previous_key = int(block[-1])
        return keys

    def _page_hashes(self, tokens: npt.NDArray[np.int32]) -> Keys:
        # The shift mixes high bits into low ones, so that no pattern of tokens sums to nothing
        # for every seed. Where two tokens make a word, half the work is done.
        words = tokens.astype(np.uint64) if self._page_size & 1 else tokens.view(np.uint64)
        spread = words + self._offset
        spread *= self._spread
        spread ^= spread >> np.uint64(32)
        hashes: Keys = spread.reshape(len(tokens) // self._page_size, -1) @ self._factors
        return hashes

    def _chain(self, hashes: Keys, previous_key: int) -> Keys:
        # K_i = m**(i+1) * K + sum of m**(i-j) * h_j = m**i * (m * K + sum of h_j * m**-j)
        count = len(hashes)
        if count > len(self._powers):
            self._grow(count)
        sums = hashes * self._inverses[:count]
        sums[:1] += np.uint64(self._multiplier * previous_key & MASK)
        return np.cumsum(sums, out=sums) * self._powers[:count]

    def _grow(self, count: int) -> None:
        length = min(BLOCK_PAGES, max(count, 2 * len(self._powers)))
        self._powers = _powers_of(self._multiplier, length)
        self._inverses = _powers_of(pow(self._multiplier, -1, 1 << 64), length)


def _powers_of(base: int, count: int) -> Keys:
    factors = np.full(count, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors)
