"""The comparison of kernel and reference sees what it is there to see."""

import os

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from paging import buffer, int32
from twice import POISON, assert_equal, assert_same, copy_of, poisoned, strided

from kvlife.kernels import ViolationCode
from kvlife.kernels.violations import note


def found_at(page):
    violations = buffer()
    amiss = torch.tensor([True])
    note(violations, ViolationCode.NOT_FREE, amiss, page=int32([page]), where=-1, seq=1)
    return violations


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.tensor([0.0]), torch.tensor([-0.0])),
        (torch.tensor([1, 2]), torch.tensor([1, 3])),
        (int32([1]), torch.tensor([1])),
        ({"found": found_at(3)}, {"found": found_at(4)}),
        ([found_at(3)], [buffer()]),
        (None, 1),
    ],
)
def test_a_difference_is_seen(one, other):
    """A sign of zero, a value, a dtype, a finding, a result: each is a difference."""
    assert_equal(one, copy_of(one), "itself")
    with pytest.raises(AssertionError):
        assert_equal(one, other, "these")


def test_nan_is_equal_to_the_same_nan_alone():
    """NaNs are compared by their bits."""
    nan = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert_equal(nan, nan.clone(), "themselves")
    with pytest.raises(AssertionError):
        assert_equal(nan, nan.flip(0), "another's")


def test_a_write_beside_a_view_is_seen():
    """An operation that by Triton writes into the gaps of a strided output does not pass."""

    def careless(out):
        out.zero_()
        if os.environ["KVLIFE_KERNELS"] == "triton":
            out.as_strided((2,), (1,)).zero_()

    with pytest.raises(AssertionError, match="around the view"):
        assert_same(careless, strided(int32([1, 2, 3])))


def test_unwritten_elements_show():
    """A poisoned output holds no zeros, and the gaps of a strided input are poisoned too."""
    assert poisoned((2, 3), torch.uint8).unique().tolist() == [POISON]
    apart = strided(torch.tensor([1, 2], dtype=torch.uint8))
    assert apart.tolist() == [1, 2]
    assert list(apart.untyped_storage()) == [1, POISON, POISON, 2, POISON, POISON]
