"""The kernels that move pages through their states do what their references do."""

import numpy as np
import pytest
import torch
from paging import buffer, faulty_entries, faulty_pages, int32, space_columns
from twice import assert_same, strided

from kvlife.kernels import PageState
from kvlife.kernels.bind_pages import bind_pages
from kvlife.kernels.change_pages import Transition, change_pages
from kvlife.kernels.rebind import rebind
from kvlife.kernels.release_pages import release_pages
from kvlife.kernels.share_pages import share_pages

NUMS = (0, 1, 3, 257, 1000)
SIZES = (2, 40, 3000)
FAULTY = (False, True)
APART = (False, True)

moves = pytest.mark.axes(num=NUMS, num_pages=SIZES, faulty=FAULTY, apart=APART)


class Inputs:
    """What the moves take, from a case's axes; `apart` leaves gaps between the elements."""

    def __init__(self, case, seed, wanted=tuple(PageState)):
        self.rng = np.random.default_rng(seed)
        self.case = case
        self.num, num_pages = case["num"], case["num_pages"]
        self.state, self.refs, self.pins = space_columns(self.rng, num_pages)
        self.table = int32(self.rng.integers(0, num_pages, 2 * self.num + 5))
        fitting = np.flatnonzero(np.isin(self.state.numpy(), [int(state) for state in wanted]))
        self.right = self.rng.permutation(fitting[fitting > 0])
        if not case["faulty"]:
            self.num = min(self.num, len(self.right))
        self.named = {"violations": buffer(), "seq": 2**40 + 3, "group": 5}

    def laid(self, tensor):
        return strided(tensor) if self.case["apart"] else tensor

    def pages(self):
        if self.case["faulty"]:
            return self.laid(faulty_pages(self.rng, len(self.state), self.num))
        return self.laid(int32(self.right[: self.num]))

    def at(self):
        if self.case["faulty"]:
            return self.laid(faulty_entries(self.rng, len(self.table), self.num))
        return self.laid(torch.from_numpy(self.rng.permutation(len(self.table))[: self.num]))


def assert_quiet(inputs, arguments):
    """Where nothing was faulty nothing was found."""
    if not inputs.case["faulty"]:
        assert arguments[1]["violations"].read() == []


@moves
def test_bind_pages(case, seed):
    """FREE pages, and pages in any state and twice, are bound alike."""
    inputs = Inputs(case, seed, [PageState.FREE])
    _, arguments = assert_same(
        bind_pages,
        *(inputs.table, inputs.state, inputs.refs, inputs.at(), inputs.pages()),
        **inputs.named,
    )
    assert_quiet(inputs, arguments)


@moves
def test_share_pages(case, seed):
    """Pages that others hold, and pages in any state and twice, are shared alike."""
    inputs = Inputs(case, seed, [PageState.PRIVATE, PageState.CACHED])
    _, arguments = assert_same(
        share_pages,
        *(inputs.table, inputs.state, inputs.refs, inputs.at(), inputs.pages()),
        **inputs.named,
    )
    assert_quiet(inputs, arguments)


@moves
def test_release_pages(case, seed):
    """Pages with references, and pages in any state and twice, are let go alike."""
    inputs = Inputs(case, seed, [PageState.PRIVATE])
    _, arguments = assert_same(
        release_pages,
        *(inputs.table, inputs.state, inputs.refs, inputs.pins, inputs.at(), inputs.pages()),
        **inputs.named,
    )
    assert_quiet(inputs, arguments)


@moves
@pytest.mark.parametrize("transition", Transition)
def test_change_pages(case, transition, seed):
    """Pages of any state, once or twice, make each transition alike."""
    inputs = Inputs(case, seed)
    assert_same(
        change_pages,
        *(inputs.state, inputs.refs, inputs.pins, inputs.pages(), transition),
        **inputs.named,
    )


@moves
def test_rebind(case, seed):
    """Entries go to other pages alike, where a page is both own and canonical too."""
    inputs = Inputs(case, seed, [PageState.PRIVATE, PageState.CACHED])
    at, own = inputs.at(), inputs.pages()
    for spot, page in zip(at.tolist(), own.tolist(), strict=True):
        if 0 <= spot < len(inputs.table) and inputs.rng.random() < 0.9:
            inputs.table[spot] = page
    canonical = own.flip(0)
    assert_same(
        rebind,
        *(inputs.table, inputs.state, inputs.refs, inputs.pins, at, own, canonical),
        **inputs.named,
    )


def test_findings_beyond_the_buffer_are_counted(seed):
    """A buffer of three takes the first three findings of a hundred and counts them all."""
    rng = np.random.default_rng(seed)
    state, refs, _ = space_columns(rng, 10)
    at, pages = torch.arange(100), int32(np.zeros(100))
    _, arguments = assert_same(
        bind_pages, int32(np.zeros(100)), state, refs, at, pages, violations=buffer(3), seq=1
    )
    found = arguments[1]["violations"]
    assert found.count.item() == 100
    assert [finding.where for finding in found.read()] == [0, 1, 2]
