"""The kernels on whole pages do what their references do."""

import numpy as np
import pytest
import torch
from page_content import DTYPES, KINDS, Content, content, planes_of, random_bytes, write_content
from paging import buffer
from twice import assert_same

from kvlife.kernels import ViolationCode
from kvlife.kernels.copy_pages import copy_pages
from kvlife.kernels.copy_pages.kernel import copy_pages_triton
from kvlife.kernels.digest_pages import digest_pages
from kvlife.kernels.digest_pages.kernel import digest_pages_triton
from kvlife.kernels.fill_pages import fill_pages
from kvlife.kernels.fill_pages.kernel import fill_pages_triton
from kvlife.kernels.gather_pages import gather_pages
from kvlife.kernels.gather_pages.kernel import gather_pages_triton
from kvlife.kernels.scatter_pages import scatter_pages
from kvlife.kernels.scatter_pages.kernel import scatter_pages_triton

contents = pytest.mark.axes(
    kind=KINDS,
    dtype=DTYPES,
    order=("layer", "page"),
    page_size=(1, 16, 64, 256),
    num=(0, 1, 3, 7),
    apart=(False, True),
)


def found():
    return {"violations": buffer(), "seq": 2**40 + 3, "group": 5}


@contents
def test_copy_pages(case, seed):
    """Pages are copied to others; what padding names, and all around, stays."""
    given = Content(case, seed)
    src, dst = given.several(), given.others()
    src = torch.where((src == 0) & (dst > 0), given.order[:1].to(src.dtype), src)
    assert_same(copy_pages, given.arena, given.planes, src, dst, **found())


@contents
def test_gather_pages(case, seed):
    """Pages go to staging, to the rows named where some are."""
    given = Content(case, seed)
    staging, rows = given.staging()
    pages = given.several()
    assert_same(gather_pages, given.arena, given.planes, pages, staging, rows=rows, **found())


@contents
def test_scatter_pages(case, seed):
    """Staging goes to pages, from the rows named where some are."""
    given = Content(case, seed)
    staging, rows = given.staging()
    pages = given.distinct()
    assert_same(scatter_pages, given.arena, given.planes, pages, staging, rows=rows, **found())


@contents
def test_digest_pages(case, seed):
    """Digests are the same 64 bits."""
    given = Content(case, seed)
    assert_same(digest_pages, given.arena, given.planes, given.several(), **found())


@contents
def test_fill_pages(case, seed):
    """Pages are filled; what padding names, and all around, stays."""
    given = Content(case, seed)
    byte = int(given.rng.integers(256))
    assert_same(fill_pages, given.arena, given.planes, given.several(), byte, **found())


@pytest.mark.parametrize("operation", [copy_pages, digest_pages, gather_pages])
def test_a_thousand_pages(operation, seed):
    """A thousand pages are as few."""
    case = {"kind": "heads", "dtype": "fp16", "order": "layer", "page_size": 1, "num": 1000}
    given = Content({**case, "apart": True}, seed)
    arguments = {
        copy_pages: (given.order[:1000], given.others()),
        gather_pages: (given.several(), given.staging()[0]),
        digest_pages: (given.several(),),
    }
    assert_same(operation, given.arena, given.planes, *arguments[operation], **found())


OUTSIDE, RESERVED = ViolationCode.OUTSIDE, ViolationCode.RESERVED_TOUCHED
PLANES = planes_of(16, 5)


def told(launch, *arguments):
    """What a launch reports, where the contract has not looked at its pages: as on a GPU."""
    violations = buffer()
    launch(*arguments, violations, seq=9, group=4)
    findings = sorted(violations.read(), key=lambda finding: finding.where)
    assert all((finding.seq, finding.group) == (9, 4) for finding in findings)
    return [(finding.code, finding.page, finding.where) for finding in findings]


def test_pages_outside_are_reported_and_skipped(seed):
    """On a device a page outside the pool is a finding, and the others are worked on."""
    rng = np.random.default_rng(seed)
    arena, given = random_bytes(rng, PLANES.num_bytes), random_bytes(rng, 4, PLANES.page_bytes)
    pages = torch.tensor([-1, 2, 6, 2**31 - 1])
    expected = [(OUTSIDE, -1, 0), (OUTSIDE, 6, 2), (OUTSIDE, 2**31 - 1, 3)]
    staging = given.clone()
    assert told(gather_pages_triton, arena, PLANES, pages, staging, None) == expected
    assert torch.equal(staging[1], content(arena, PLANES, 2))
    assert torch.equal(staging[[0, 2, 3]], given[[0, 2, 3]])

    before = arena.clone()
    write_content(before, PLANES, 2, given[1])
    assert told(scatter_pages_triton, arena, PLANES, pages, given, None) == expected
    assert torch.equal(arena, before)

    write_content(before, PLANES, 2, torch.full((PLANES.page_bytes,), 7, dtype=torch.uint8))
    assert told(fill_pages_triton, arena, PLANES, pages, 7) == expected
    assert torch.equal(arena, before)

    assert told(digest_pages_triton, arena, PLANES, pages) == expected
    digests = digest_pages_triton(arena, PLANES, pages, None).tolist()
    assert digests[1] != 0
    assert digests[::2] + digests[3:] == [0, 0, 0]


def test_rows_outside_are_reported_and_skipped(seed):
    """On a device a staging row outside is a finding, with the page that was to go there."""
    arena = random_bytes(np.random.default_rng(seed), PLANES.num_bytes)
    staging = torch.zeros((2, PLANES.page_bytes), dtype=torch.uint8)
    pages, rows = torch.tensor([1, 2, 3]), torch.tensor([2, 1, -1])
    found = told(gather_pages_triton, arena, PLANES, pages, staging, rows)
    assert found == [(OUTSIDE, 1, 0), (OUTSIDE, 3, 2)]
    assert torch.equal(staging[1], content(arena, PLANES, 2))
    assert not staging[0].any()


def test_copies_that_cannot_be_are_reported_and_skipped(seed):
    """On a device a page outside, and a copy of page 0, are findings; padding is none."""
    arena = random_bytes(np.random.default_rng(seed), PLANES.num_bytes)
    before = arena.clone()
    write_content(before, PLANES, 5, content(arena, PLANES, 3))
    src, dst = torch.tensor([1, 6, 0, 0, 3]), torch.tensor([-2, 1, 2, 0, 5])
    found = told(copy_pages_triton, arena, PLANES, src, dst)
    assert found == [(OUTSIDE, -2, 0), (OUTSIDE, 6, 1), (RESERVED, 0, 2)]
    assert torch.equal(arena, before)


@pytest.mark.parametrize("sizes", [(16, 24), (5, 9)])
def test_digests_do_not_depend_on_the_launch(sizes, seed):
    """Whatever tiles a program takes, a digest is the same."""
    planes = planes_of(*sizes, num_layers=9)
    arena = random_bytes(np.random.default_rng(seed), planes.num_bytes)
    pages = torch.tensor([1, 4])
    digests = {
        tuple(
            digest_pages_triton(arena, planes, pages, None, lanes=lanes, num_warps=warps).tolist()
        )
        for lanes, warps in ((16, 1), (64, 2), (2048, 4), (8192, 16))
    }
    assert len(digests) == 1
