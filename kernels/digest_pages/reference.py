"""`digest_pages` without Triton."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kvlife.kernels.digest_pages.mixing import FACTOR, STEP
from kvlife.kernels.page_runs import contents, ids, on_host
from kvlife.kernels.planes import Planes

Words = npt.NDArray[np.uint64]

# Content is mixed in pieces that stay in a core's cache.
PIECE_WORDS = 1 << 15
WORD_BYTES = 8


def digest_pages_reference(arena: Tensor, planes: Planes, pages: Tensor) -> Tensor:
    """Digest pages as the contract says; pages lie in the pool."""
    named = ids(pages)
    digests = np.zeros(len(named), np.uint64)
    with on_host(arena) as there:
        first = 0
        for run in contents(there, planes, WORD_BYTES):
            num = max(PIECE_WORDS * WORD_BYTES // run.itemsize, 1)
            for low in range(0, len(named), num):
                words = _words(run[named[low : low + num]])
                digests[low : low + num] += _sums(words, first)
            first += -(-run.itemsize // WORD_BYTES)
    digests[named == 0] = 0
    return torch.from_numpy(digests.view(np.int64)).to(pages.device)


def _words(runs: npt.NDArray[np.void]) -> Words:
    """[runs, words] of the bytes of each run, the last word filled up with zeros."""
    content = runs.view(np.uint8).reshape(len(runs), runs.itemsize)
    missing = -runs.itemsize % WORD_BYTES
    if missing:
        content = np.pad(content, ((0, 0), (0, missing)))
    return content.view("<u8")


def _sums(words: Words, first: int) -> Words:
    """The sum of each run's words, mixed with their places from `first` on; spoils `words`."""
    sums = np.zeros(len(words), np.uint64)
    for low in range(0, words.shape[1], PIECE_WORDS):
        piece = words[:, low : low + PIECE_WORDS]
        places = np.arange(first + low + 1, first + low + 1 + piece.shape[1], dtype=np.uint64)
        piece += places * np.uint64(STEP)
        for _ in range(2):
            piece ^= piece >> np.uint64(32)
            piece *= np.uint64(FACTOR)
        piece ^= piece >> np.uint64(32)
        sums += piece.sum(axis=1)
    return sums
