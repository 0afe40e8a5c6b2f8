"""Page keys: the formula, the chain, and that different content gets different keys."""

import hashlib
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from kvlife.errors import ConfigError
from kvlife.prefix import PageKeys
from kvlife.prefix import keys as keys_module

WORD = 1 << 64


def keys_by_hand(seed, page_size, tokens, key):
    """The documented formula with Python's own integers."""
    per_word = 1 if page_size % 2 else 2
    drawn = [int(x) | 1 for x in np.random.PCG64(seed).random_raw(3 + page_size // per_word)]
    multiplier, spread, offset, factors = drawn[0], drawn[1], drawn[2], drawn[3:]
    keys = []
    for first in range(0, len(tokens) - page_size + 1, page_size):
        page_hash = 0
        for idx, factor in enumerate(factors):
            at = first + idx * per_word
            pair = [int(token) for token in tokens[at : at + per_word]]
            word = (sum(token << 32 * half for half, token in enumerate(pair)) + offset) * spread
            word %= WORD
            page_hash += (word ^ word >> 32) * factor
        key = (multiplier * key + page_hash) % WORD or 1
        keys.append(key)
    return keys


@pytest.mark.parametrize("page_size", [1, 2, 16, 256])
def test_follows_the_formula(page_size):
    """The array operations give what the formula gives, one integer at a time."""
    tokens = np.random.default_rng(3).integers(0, 2**31, page_size * 37 + page_size - 1)
    tokens = tokens.astype(np.int32)
    namer = PageKeys(11, page_size)
    keys = namer.extend(tokens, namer.initial(b"ns"))
    assert keys.dtype == np.uint64
    assert keys.tolist() == keys_by_hand(11, page_size, tokens, namer.initial(b"ns"))


@given(
    tokens=st.lists(st.integers(0, 2**31 - 1), max_size=60),
    cuts=st.lists(st.integers(0, 20), max_size=4),
    page_size=st.sampled_from([1, 2, 16]),
)
def test_chunks_are_named_like_the_whole(tokens, cuts, page_size):
    """Naming a prompt call by call gives the keys of naming it at once."""
    namer = PageKeys(5, page_size)
    tokens = np.array(tokens, np.int32)
    whole = namer.extend(tokens, namer.initial(b""))
    edges = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
    key, chunks = namer.initial(b""), []
    for first, last in pairwise(edges):
        part = PageKeys(5, page_size).extend(tokens[first * page_size : last * page_size], key)
        chunks += part.tolist()
        key = int(part[-1])
    assert chunks == whole.tolist()


def test_blocks_do_not_show():
    """A prompt longer than a block of the tables is chained on across it."""
    pages = keys_module.BLOCK_PAGES + 3
    tokens = np.arange(pages, dtype=np.int32)
    assert PageKeys(1, 1).extend(tokens, 9).tolist() == keys_by_hand(1, 1, tokens, 9)


def test_no_key_is_zero():
    """Where the formula gives 0 the key is 1, and the chain goes on from there."""
    tokens = np.array([4, 8, 15], np.int32)
    multiplier = int(np.random.PCG64(2).random_raw()) | 1
    first_hash = keys_by_hand(2, 1, tokens[:1], 0)[0]
    before = -first_hash * pow(multiplier, -1, WORD) % WORD
    assert (multiplier * before + first_hash) % WORD == 0
    keys = PageKeys(2, 1).extend(tokens, before)
    assert keys[0] == 1
    assert keys.tolist() == keys_by_hand(2, 1, tokens, before)


@pytest.mark.parametrize("page_size", [1, 16])
def test_every_change_changes_the_key_and_all_after_it(page_size):
    """One other token, two swapped, or two changed against each other give other keys."""
    namer = PageKeys(8, page_size)
    base = np.arange(100, 100 + 4 * page_size, dtype=np.int32)
    expected = namer.extend(base, 1)
    for change in [{0: 0}, {0: 101, 1: 100}, {0: 102, 1: 99}, {1: 2**30 + 101}]:
        other = base.copy()
        for at, token in change.items():
            other[at] = token
        first = min(change) // page_size
        assert not (namer.extend(other, 1) == expected)[first:].any()


def test_a_million_pages_have_a_million_keys():
    """Among 2**20 small, regular pages of two tokens no two keys meet (by chance: 3e-8)."""
    first, second = np.divmod(np.arange(1 << 20), 1 << 10)
    tokens = np.stack((first << 20, second << 20), axis=1).astype(np.int32)
    hashes = PageKeys(21, 2)._page_hashes(tokens.reshape(-1))
    assert len(np.unique(hashes)) == 1 << 20


def test_namespaces_seeds_and_page_sizes_are_kept_apart():
    """The first key depends on namespace, seed and page size; equal ones agree."""
    starts = [
        PageKeys(seed, size).initial(space)
        for seed in (1, 2)
        for size in (1, 16)
        for space in (b"", b"\x00", b"lora")
    ]
    assert len(set(starts)) == 12
    assert starts[0] == PageKeys(1, 1).initial(b"")


def test_the_fingerprint_tells_seeds_apart_only():
    """Logs under one seed share it, whatever the page size; it is no plain hash of the seed."""
    assert PageKeys(1, 1).fingerprint() == PageKeys(1, 64).fingerprint()
    assert PageKeys(1, 1).fingerprint() != PageKeys(2, 1).fingerprint()
    assert len(PageKeys(1, 1).fingerprint()) == 16
    plain = hashlib.blake2b(b"\x01", digest_size=8).hexdigest()
    assert PageKeys(1, 1).fingerprint() != plain


def test_without_a_seed_each_is_its_own():
    """Two of them under secret seeds do not agree."""
    assert PageKeys(None, 1).fingerprint() != PageKeys(None, 1).fingerprint()


@pytest.mark.parametrize(("seed", "page_size"), [(-1, 16), (1, 0)])
def test_refuses_what_makes_no_keys(seed, page_size):
    """A negative seed and an empty page are configuration errors."""
    with pytest.raises(ConfigError, match="at least"):
        PageKeys(seed, page_size)
