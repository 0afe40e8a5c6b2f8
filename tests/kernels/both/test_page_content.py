"""Operations on whole pages: small cases by hand, what a digest sees, and what is refused."""

import itertools

import attrs
import numpy as np
import pytest
import torch
from page_content import content, planes_of, random_bytes, section, write_content

from kvlife.kernels import KernelError, Violations
from kvlife.kernels.copy_pages import copy_pages
from kvlife.kernels.digest_pages import digest_pages
from kvlife.kernels.fill_pages import fill_pages
from kvlife.kernels.gather_pages import gather_pages
from kvlife.kernels.scatter_pages import scatter_pages

# Two planes of 2 and 1 bytes, two layers, three pages: 12 bytes of the first plane, then 6.
#   plane 0, layer 0: 0 1 | 2 3 | 4 5     layer 1: 6 7 | 8 9 | 10 11
#   plane 1, layer 0: 12  | 13  | 14      layer 1: 15  | 16  | 17
SMALL = planes_of(2, 1, num_pages=3)
BYTES = torch.arange(18, dtype=torch.uint8)
PAGE_1, PAGE_2 = [2, 3, 8, 9, 13, 16], [4, 5, 10, 11, 14, 17]


def ids(*pages):
    return torch.tensor(pages, dtype=torch.int32)


def test_a_page_is_copied_by_hand():
    """All bytes of page 1, planes and layers, come to stand in page 2, and no other moves."""
    arena = BYTES.clone()
    copy_pages(arena, SMALL, ids(1), ids(2))
    assert arena.tolist() == [0, 1, 2, 3, 2, 3, 6, 7, 8, 9, 8, 9, 12, 13, 13, 15, 16, 16]


def test_pages_are_gathered_by_hand():
    """A staging row has planes in order, in each its layers; a row for page 0 stays."""
    staging = torch.full((3, 6), 99, dtype=torch.uint8)
    gather_pages(BYTES.clone(), SMALL, ids(2, 0, 1), staging)
    assert staging.tolist() == [PAGE_2, [99] * 6, PAGE_1]


def test_pages_are_gathered_into_named_rows():
    """With `rows`, each page goes to the row named for it, and the others stay."""
    staging = torch.full((4, 7), 99, dtype=torch.uint8)
    gather_pages(BYTES.clone(), SMALL, ids(2, 1), staging, rows=ids(3, 0))
    assert staging.tolist() == [[*PAGE_1, 99], [99] * 7, [99] * 7, [*PAGE_2, 99]]


def test_pages_are_scattered_by_hand():
    """A staging row fills a page as gathering would have emptied it; page 0 takes nothing."""
    arena = BYTES.clone()
    scatter_pages(arena, SMALL, ids(0, 1), torch.arange(40, 52, dtype=torch.uint8).view(2, 6))
    assert arena.tolist() == [0, 1, 46, 47, 4, 5, 6, 7, 48, 49, 10, 11, 12, 50, 14, 15, 51, 17]


def test_pages_are_filled_by_hand():
    """Every byte of a page is set, and page 0 is left alone."""
    arena = BYTES.clone()
    fill_pages(arena, SMALL, ids(0, 2), 200)
    assert arena.tolist() == [0, 1, 2, 3, 200, 200, 6, 7, 8, 9, 200, 200, 12, 13, 200, 15, 16, 200]


def digest_by_hand(given, page_bytes, num_layers=2):
    """The formula of `mixing.py` in Python's integers, over a page's content."""
    words, at = [], 0
    for size in page_bytes:
        for _ in range(num_layers):
            part = bytes(given[at : at + size].tolist())
            words += [part[i : i + 8].ljust(8, b"\0") for i in range(0, size, 8)]
            at += size
    total = 0
    for place, word in enumerate(words):
        x = int.from_bytes(word, "little") + (place + 1) * 0x9E3779B97F4A7C15
        for _ in range(2):
            x = x % 2**64
            x = (x ^ (x >> 32)) * 0xDABA0B6EB09322E3
        x = x % 2**64
        total += x ^ (x >> 32)
    return total % 2**64


SHAPES = [(8, 8), (16, 32), (2, 1), (7,), (20, 12, 5), (9, 16)]


@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.parametrize("order", ["layer", "page"])
def test_a_digest_is_what_the_formula_says(sizes, order, seed):
    """Digests are those of the formula, whatever the sections' sizes, and page 0's is 0."""
    planes = planes_of(*sizes, order=order)
    arena = random_bytes(np.random.default_rng(seed), planes.num_bytes)
    digests = digest_pages(arena, planes, ids(1, 0, 5, 1))
    expected = [digest_by_hand(content(arena, planes, page), sizes) for page in (1, 5)]
    first, padding, last, again = (digest % 2**64 for digest in digests.tolist())
    assert ([first, last], padding, again) == (expected, 0, first)


@pytest.mark.parametrize("sizes", SHAPES)
def test_buffers_of_either_order_have_equal_digests(sizes, seed):
    """Per layer, page-major, or not at the start of a word: equal content, equal digest."""
    rng = np.random.default_rng(seed)
    given = random_bytes(rng, 2 * sum(sizes))
    digests = set()
    for order, offset in itertools.product(("layer", "page"), (0, 256, 3)):
        planes = planes_of(*sizes, order=order, offset=offset)
        arena = random_bytes(rng, planes.num_bytes)
        write_content(arena, planes, 4, given)
        digests.add(digest_pages(arena, planes, ids(4)).item())
    assert len(digests) == 1


@pytest.mark.parametrize("sizes", [(8, 4), (3, 5)])
def test_every_flipped_bit_changes_the_digest(sizes, seed):
    """A page that differs in any one bit has another digest, and no two flips have the same."""
    num_bits = 8 * 2 * sum(sizes)
    planes = planes_of(*sizes, num_pages=num_bits + 2)
    given = random_bytes(np.random.default_rng(seed), 2 * sum(sizes))
    arena = torch.zeros(planes.num_bytes, dtype=torch.uint8)
    write_content(arena, planes, 1, given)
    for bit in range(num_bits):
        flipped = given.clone()
        flipped[bit // 8] ^= 1 << bit % 8
        write_content(arena, planes, bit + 2, flipped)
    digests = digest_pages(arena, planes, torch.arange(1, num_bits + 2))
    assert len(set(digests.tolist())) == num_bits + 1


def test_whatever_changes_its_place_changes_the_digest(seed):
    """Words, layers and planes that change places give another digest."""
    planes = planes_of(16, 16, num_pages=2)
    arena = random_bytes(np.random.default_rng(seed), planes.num_bytes)
    first, second = planes.planes
    for one, other in (
        (section(arena, first, 0, 1)[:8], section(arena, first, 0, 1)[8:]),
        (section(arena, first, 0, 1), section(arena, first, 1, 1)),
        (section(arena, first, 0, 1), section(arena, second, 0, 1)),
    ):
        before = digest_pages(arena, planes, ids(1)).item()
        kept = one.clone()
        one.copy_(other)
        other.copy_(kept)
        assert digest_pages(arena, planes, ids(1)).item() != before


def test_zeros_have_digests_too():
    """Pages of zeros of other lengths have other digests, and none has that of padding."""
    digests = set()
    for size in (8, 16, 24, 32):
        planes = planes_of(size, num_layers=1)
        arena = torch.zeros(planes.num_bytes, dtype=torch.uint8)
        digests.add(digest_pages(arena, planes, ids(1)).item())
    assert len(digests | {0}) == 5


@pytest.mark.parametrize("order", ["layer", "page"])
def test_nothing_is_done_for_no_pages(order):
    """Without pages nothing is written, and there are no digests."""
    planes, none = planes_of(16, 3, order=order), ids()
    arena = torch.zeros(planes.num_bytes, dtype=torch.uint8)
    staging = torch.zeros((0, planes.page_bytes), dtype=torch.uint8)
    copy_pages(arena, planes, none, none)
    gather_pages(arena, planes, none, staging)
    scatter_pages(arena, planes, none, staging)
    fill_pages(arena, planes, none, 1)
    assert digest_pages(arena, planes, none).shape == (0,)
    assert not arena.any()


ROWS = torch.zeros((2, 6), dtype=torch.uint8)
REFUSED = {
    "a page outside": (copy_pages, (ids(1), ids(3)), r"dst in \[0, 3\).*3 is outside"),
    "a page below": (digest_pages, (ids(2, -1),), r"pages in \[0, 3\).*-1 is outside"),
    "a copy of page 0": (copy_pages, (ids(0, 1), ids(1, 0)), "copy of page 0"),
    "a target twice": (copy_pages, (ids(1, 1), ids(2, 2)), r"\[2\] stand there twice"),
    "a chain": (copy_pages, (ids(1, 2), ids(2, 1)), r"pages \[2, 1\] are sources and targets"),
    "a page onto itself": (copy_pages, (ids(1), ids(1)), r"pages \[1\] are sources and targets"),
    "fewer targets": (copy_pages, (ids(1, 2), ids(1)), r"dst has the shape \[2\]"),
    "pages as floats": (fill_pages, (torch.ones(1), 0), "pages is int32 or int64"),
    "pages in a table": (digest_pages, (ids(1).view(1, 1),), r"shape \[\*\]"),
    "half a byte": (fill_pages, (ids(1), 0.5), "a byte from 0 to 255.*0.5"),
    "no byte": (fill_pages, (ids(1), 256), "a byte from 0 to 255.*256"),
    "few rows": (gather_pages, (ids(1, 2, 1), ROWS), "3 pages.*2 rows"),
    "narrow rows": (gather_pages, (ids(1), ROWS[:, :5]), "rows of 6 contiguous bytes"),
    "rows with gaps": (gather_pages, (ids(1), ROWS.repeat(1, 2)[:, ::2]), "contiguous"),
    "rows that are one": (scatter_pages, (ids(1, 2), ROWS[:1].expand(2, 6)), "overlap"),
    "rows of ints": (scatter_pages, (ids(1), ROWS.int()), "staging is uint8"),
    "a page scattered to twice": (scatter_pages, (ids(1, 1), ROWS), r"\[1\] stand there twice"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_refused(case):
    """Each says what was asked and what is the case, and nothing has been written."""
    operation, arguments, said = REFUSED[case]
    arena = BYTES.clone()
    with pytest.raises(KernelError, match=said):
        operation(arena, SMALL, *arguments)
    assert torch.equal(arena, BYTES)


@pytest.mark.parametrize(
    ("rows", "said"),
    [(ids(2), r"rows in \[0, 2\).*2 is outside"), (ids(0, 1), "rows has the shape")],
)
def test_rows_that_are_not_there_are_refused(rows, said):
    """A row outside of staging, or one too many, is refused."""
    with pytest.raises(KernelError, match=said):
        gather_pages(BYTES.clone(), SMALL, ids(1), ROWS.clone(), rows=rows)


def test_a_row_gathered_into_twice_is_refused():
    """Two pages cannot go to one row; from one row, two pages may come."""
    with pytest.raises(KernelError, match=r"\[1\] stand there twice"):
        gather_pages(BYTES.clone(), SMALL, ids(1, 2), ROWS.clone(), rows=ids(1, 1))
    arena = BYTES.clone()
    scatter_pages(arena, SMALL, ids(1, 2), torch.full((2, 6), 7, dtype=torch.uint8), rows=ids(1, 1))
    assert [content(arena, SMALL, page).tolist() for page in (1, 2)] == [[7] * 6] * 2


def test_findings_need_a_buffer_and_numbers():
    """A buffer of another shape, or a seq below 0, is refused."""
    cut = Violations(count=torch.zeros(2, dtype=torch.int32), entries=torch.zeros((1, 5)))
    with pytest.raises(KernelError, match=r"violations\.count"):
        digest_pages(BYTES.clone(), SMALL, ids(1), violations=cut)
    with pytest.raises(KernelError, match="seq is a number"):
        digest_pages(BYTES.clone(), SMALL, ids(1), violations=Violations.create("cpu"), seq=-1)


def test_an_arena_of_another_shape_is_refused():
    """An arena that is too short, of another dtype, or with gaps, is refused."""
    for arena in (BYTES[:17].clone(), BYTES.int(), torch.zeros(36, dtype=torch.uint8)[::2]):
        with pytest.raises(KernelError, match="arena"):
            digest_pages(arena, SMALL, ids(1))


@pytest.mark.parametrize("planes", [None, 18, (SMALL,)])
def test_what_are_no_planes_is_refused(planes):
    """Every operation on pages says what to pass for the planes."""
    for operation in (copy_pages, gather_pages, scatter_pages, fill_pages, digest_pages):
        arguments = () if operation is digest_pages else (ROWS,)
        with pytest.raises(KernelError, match=r"planes say where pages lie.*layout\.planes"):
            operation(BYTES.clone(), planes, ids(1), *arguments)


def test_an_arena_may_begin_anywhere(seed):
    """A view into a larger buffer, at any byte, is an arena like any other."""
    planes = planes_of(32, 16)
    rng = np.random.default_rng(seed)
    given = random_bytes(rng, planes.page_bytes)
    digests = set()
    for first in range(17):
        arena = random_bytes(rng, planes.num_bytes + 17)[first:][: planes.num_bytes]
        staging = random_bytes(rng, planes.page_bytes + 17)[first:][: planes.page_bytes]
        write_content(arena, planes, 2, given)
        gather_pages(arena, planes, ids(2), staging.view(1, -1))
        assert torch.equal(staging, given)
        copy_pages(arena, planes, ids(2), ids(5))
        digests.update(digest_pages(arena, planes, ids(2, 5)).tolist())
    assert len(digests) == 1


def test_planes_may_be_named_by_others():
    """Two descriptions of one arena, equal but for names, do the same."""
    renamed = attrs.evolve(
        SMALL, planes=[attrs.evolve(plane, name=plane.name + "'") for plane in SMALL.planes]
    )
    first, second = (digest_pages(BYTES.clone(), planes, ids(1)) for planes in (SMALL, renamed))
    assert torch.equal(first, second)
