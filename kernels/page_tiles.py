"""Work lists of the kernels on whole pages, which take all layers and planes in one launch.

A kernel gets a table of *tiles*: stretches of one page's content, the same for each page but for
`page * page_stride`. Which plane and layer a tile belongs to, and how planes lie, is settled here,
once for each arena; a program looks up its tiles and moves words.
"""

from __future__ import annotations

import functools
import math

import attrs
import numpy as np
import torch
from torch import Tensor

from kvlife.kernels.planes import MAX_WORD_BYTES, Planes, runs_of

LANES = 2048
MIN_COLS = 16
# Below this share of lanes at work, narrower tiles are tried.
ENOUGH = 0.85
MAX_LANE_BYTES = 8
DIGEST_BYTES = 8


@attrs.frozen(kw_only=True, eq=False)
class PageTiles:
    """The tiles of one page, and the block of `rows` tiles of `cols` lanes that a program takes.

    `table` is int64 [4, tiles]: where a tile starts in page 0, its page stride and its size, in
    words of `word_bytes`; and its place in the page's content, in words (for digests, of 8 bytes).
    """

    table: Tensor
    word_bytes: int
    rows: int
    cols: int

    @property
    def num_tiles(self) -> int:
        """Tiles of one page."""
        return int(self.table.shape[1])

    @property
    def blocks(self) -> int:
        """Programs that one page takes."""
        return -(-self.num_tiles // self.rows)


def shared_word(planes: Planes, *tensors: Tensor) -> int:
    """The widest word, in bytes, in which the planes and each tensor's rows may be accessed."""
    numbers = [planes.word_bytes]
    for tensor in tensors:
        numbers.append(tensor.data_ptr() % MAX_WORD_BYTES or MAX_WORD_BYTES)
        if tensor.ndim > 1 and tensor.shape[0] > 1:
            numbers.append(tensor.stride(0) * tensor.element_size())
    return math.gcd(*numbers)


@functools.lru_cache(maxsize=256)
def moving_tiles(
    planes: Planes, word_bytes: int, device: torch.device, lanes: int = LANES
) -> PageTiles:
    """Tiles for moving pages: places count words, as a staging row has them.

    The first call for an arena copies the table to its device; make one before capturing a graph.
    """
    return _tiles(planes, word_bytes, min(word_bytes, MAX_LANE_BYTES), word_bytes, device, lanes)


@functools.lru_cache(maxsize=256)
def digest_tiles(
    planes: Planes, word_bytes: int, device: torch.device, lanes: int = LANES
) -> PageTiles:
    """Tiles for digests: places count words of 8 bytes, and a section begins with a new one."""
    return _tiles(planes, word_bytes, DIGEST_BYTES, DIGEST_BYTES, device, lanes)


def _tiles(
    planes: Planes,
    word_bytes: int,
    lane_bytes: int,
    place_bytes: int,
    device: torch.device,
    lanes: int,
) -> PageTiles:
    """Cut the runs of a page's content into tiles of as many lanes as leaves few of them idle."""
    runs = [attrs.astuple(run) for run in runs_of(planes, place_bytes)]
    start, stride, size = np.array(runs, dtype=np.int64).T
    place = np.cumsum(-(-size // place_bytes)) - -(-size // place_bytes)
    cols = _cols(-(-size // lane_bytes), lanes)
    tile_bytes = cols * lane_bytes
    pieces = -(-size // tile_bytes)
    run = np.repeat(np.arange(size.size), pieces)
    into = (np.arange(run.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * tile_bytes
    table = np.stack(
        [
            (start[run] + into) // word_bytes,
            stride[run] // word_bytes,
            place[run] + into // place_bytes,
            np.minimum(size[run] - into, tile_bytes) // word_bytes,
        ]
    )
    rows = max(1, min(lanes // cols, 1 << (int(run.size) - 1).bit_length()))
    return PageTiles(
        table=torch.from_numpy(table).to(device), word_bytes=word_bytes, rows=rows, cols=cols
    )


def _cols(lanes_needed: np.ndarray, lanes: int) -> int:
    """The widest power of two that leaves few lanes of a tile idle, or the one with fewest idle."""
    widths = [lanes >> shift for shift in range(lanes.bit_length()) if lanes >> shift >= MIN_COLS]
    shares = [
        float(lanes_needed.sum() / (-(-lanes_needed // width) * width).sum()) for width in widths
    ]
    return next(
        (width for width, share in zip(widths, shares, strict=True) if share >= ENOUGH),
        widths[int(np.argmax(shares))],
    )
