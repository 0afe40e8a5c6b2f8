"""Planes: where pages lie, what is refused, and the tiles that kernels cut their content into."""

import attrs
import pytest
import torch
from page_content import planes_of

from kvlife.kernels import KernelError
from kvlife.kernels.page_tiles import digest_tiles, moving_tiles, shared_word
from kvlife.kernels.planes import Plane, Planes

CPU = torch.device("cpu")
PLANE = Plane(name="k", offset=256, num_layers=3, layer_stride=640, page_stride=64, page_bytes=48)


def test_bytes_by_hand():
    """The last section of layer 2, page 9 begins at 256 + 2 * 640 + 9 * 64 and has 48 bytes."""
    planes = Planes(planes=(PLANE,), num_pages=10)
    assert planes.num_bytes == 256 + 1280 + 576 + 48
    assert planes.page_bytes == 3 * 48
    assert planes.word_bytes == 16


@pytest.mark.parametrize(
    ("changes", "word_bytes"),
    [
        ({"offset": 264}, 8),
        ({"page_bytes": 44}, 4),
        ({"page_stride": 62}, 2),
        ({"layer_stride": 641}, 1),
        ({"layer_stride": 641, "num_layers": 1}, 16),
    ],
)
def test_words_divide_all_that_is_used(changes, word_bytes):
    """A word is the widest power of two to 16 that divides offsets, sections and strides."""
    plane = attrs.evolve(PLANE, **changes)
    assert Planes(planes=(plane,), num_pages=10).word_bytes == word_bytes


def test_tensors_narrow_the_words():
    """An arena or staging rows at an odd address are accessed in narrower words."""
    planes = Planes(planes=(PLANE,), num_pages=10)
    whole = torch.zeros(4096, dtype=torch.uint8)
    assert shared_word(planes, whole) == 16
    assert shared_word(planes, whole[4:]) == 4
    assert shared_word(planes, whole, whole[:300].view(2, 150)) == 2


REFUSED = {
    "a negative offset": ({"offset": -1}, "offset is -1"),
    "no layers": ({"num_layers": 0}, "num_layers is 0"),
    "half a byte": ({"page_bytes": 0.5}, "page_bytes is 0.5"),
    "a size beyond 64 bits": ({"page_bytes": 2**63}, "page_bytes is 9223372036854775808"),
    "pages that overlap": ({"page_stride": 47}, "'k': its sections overlap"),
    "layers that overlap": ({"layer_stride": 623}, "'k': its sections overlap"),
    "an end beyond 64 bits": ({"layer_stride": 2**62}, "beyond 2\\^63 - 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_arena_can_hold_is_refused(case):
    """Each says which plane, and what of it."""
    changes, said = REFUSED[case]
    with pytest.raises(KernelError, match=said):
        Planes(planes=(attrs.evolve(PLANE, **changes),), num_pages=10)


def test_nothing_is_no_arena():
    """A group has planes, and pages."""
    with pytest.raises(KernelError, match="without planes"):
        Planes(planes=(), num_pages=3)
    for num_pages in (0, -3, 2.5, True):
        with pytest.raises(KernelError, match=f"{num_pages} pages asked for"):
            Planes(planes=(PLANE,), num_pages=num_pages)


def beside(**changes):
    return Planes(planes=(PLANE, attrs.evolve(PLANE, name="v", **changes)), num_pages=10)


def test_planes_may_interleave_but_not_meet():
    """Planes take turns by layer or by page where one turn of both fits, and share no byte."""
    by_layer = [attrs.evolve(PLANE, layer_stride=1280, offset=offset) for offset in (0, 640)]
    Planes(planes=by_layer, num_pages=10)
    by_page = [
        attrs.evolve(PLANE, layer_stride=96, page_stride=288, offset=offset) for offset in (0, 48)
    ]
    assert Planes(planes=by_page, num_pages=10).num_bytes == 48 + 9 * 288 + 2 * 96 + 48
    beside(offset=256 + 1280 + 576 + 48)
    beside(offset=256 + 48, page_bytes=16)
    for changes in ({}, {"offset": 256 + 47}, {"offset": 255 + 1280 + 576 + 48}):
        with pytest.raises(KernelError, match="'k' and 'v' overlap"):
            beside(**changes)


def bytes_of(tiles, place_bytes, page):
    """For each byte of a page's content, in order of place, its byte in the arena."""
    bytes_there = {}
    for start, stride, place, size in tiles.table.T.tolist():
        for at in range(size * tiles.word_bytes):
            into = (start + page * stride) * tiles.word_bytes + at
            assert place * place_bytes + at not in bytes_there
            bytes_there[place * place_bytes + at] = into
    return bytes_there


@pytest.mark.parametrize("order", ["layer", "page"])
@pytest.mark.parametrize("sizes", [(16, 48), (12, 4), (7,), (80, 10, 3)])
@pytest.mark.parametrize("lanes", [16, 64, 2048])
def test_tiles_hold_each_byte_once(sizes, order, lanes):
    """Tiles reach each byte of a page, at its place in a staging row, and no other."""
    planes = planes_of(*sizes, order=order, num_layers=3)
    tiles = moving_tiles(planes, planes.word_bytes, CPU, lanes)
    expected = [
        plane.offset + layer * plane.layer_stride + 4 * plane.page_stride + byte
        for plane in planes.planes
        for layer in range(3)
        for byte in range(plane.page_bytes)
    ]
    assert bytes_of(tiles, tiles.word_bytes, 4) == dict(enumerate(expected))
    assert tiles.num_tiles <= tiles.blocks * tiles.rows
    assert int(tiles.table[3].max()) * tiles.word_bytes <= tiles.cols * min(tiles.word_bytes, 8)


@pytest.mark.parametrize("order", ["layer", "page"])
def test_tiles_of_digests_begin_sections_with_words(order):
    """Places of digests count words of 8 bytes; a section of 12 bytes takes two of them."""
    planes = planes_of(12, order=order, num_layers=2)
    tiles = digest_tiles(planes, planes.word_bytes, CPU)
    places = bytes_of(tiles, 8, 1)
    assert sorted(places) == [*range(12), *range(16, 28)]


def test_layers_that_follow_each_other_are_one_stretch():
    """In page order the layers of a plane lie side by side: a page is one tile, not one a layer."""
    assert moving_tiles(planes_of(16, order="page", num_layers=8), 16, CPU).num_tiles == 1
    assert moving_tiles(planes_of(16, order="layer", num_layers=8), 16, CPU).num_tiles == 8
