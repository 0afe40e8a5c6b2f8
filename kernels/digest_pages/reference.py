"""`digest_pages` in torch."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.digest_pages.mixing import FACTOR, STEP, signed
from kvlife.kernels.page_sections import MAX_ELEMENT_BYTES, element_bytes, sections
from kvlife.kernels.planes import Plane, Planes

# Content is mixed in pieces, so that the intermediate values of many pages fit into caches.
PIECE_BYTES = 1 << 21


def digest_pages_reference(arena: Tensor, planes: Planes, pages: Tensor) -> Tensor:
    """Digest pages as the contract says; pages lie in the pool."""
    digests = torch.zeros(pages.numel(), dtype=torch.int64, device=pages.device)
    if not pages.numel():
        return digests
    num = max(PIECE_BYTES // planes.page_bytes, 1)
    for piece, sums in zip(pages.long().split(num), digests.split(num), strict=True):
        first = 0
        for plane in planes.planes:
            words = _words(arena, planes, plane, piece)
            first += words.shape[1]
            sums.add_(_sums(words, first - words.shape[1]))
    return digests.masked_fill_(pages == 0, 0)


def _words(arena: Tensor, planes: Planes, plane: Plane, pages: Tensor) -> Tensor:
    """The words of a plane's sections: int64 [n, words], a copy."""
    num_bytes = element_bytes(planes, arena)
    content = sections(arena, planes, plane, num_bytes).index_select(0, pages)
    missing = -content.shape[2] % (MAX_ELEMENT_BYTES // num_bytes)
    if missing:
        content = torch.nn.functional.pad(content, (0, missing))
    return content.view(torch.int64).flatten(1)


def _sums(words: Tensor, first: int) -> Tensor:
    """The sum of each row's words, mixed with their places from `first` on; spoils `words`."""
    places = torch.arange(first + 1, first + 1 + words.shape[1], device=words.device)
    words += places.mul_(signed(STEP))
    for _ in range(2):
        _fold(words).mul_(signed(FACTOR))
    return _fold(words).sum(1)


def _fold(words: Tensor) -> Tensor:
    """Add the upper half of each word's bits into its lower half, in place."""
    return words.bitwise_xor_((words >> 32).bitwise_and_(0xFFFFFFFF))
