"""Digests held against what they should be, slots against the rows that may write: by hand."""

import pytest
import torch

from kvlife.kernels import KernelError, ViolationCode, Violations
from kvlife.kernels.check_stores import check_stores
from kvlife.kernels.compare_digests import compare_digests

CHANGED, STRANGE = ViolationCode.CONTENT_CHANGED, ViolationCode.STRANGE_STORE


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def found(violations):
    """The findings in any order, as (code, group, page, where, seq)."""
    return sorted((f.code, f.group, f.page, f.where, f.seq) for f in violations.read())


def test_digests_that_differ_are_found_by_hand():
    """With the digest that was found, whichever bit differs, and nothing of the others."""
    violations = Violations.create("cpu")
    here = torch.tensor([5, -7, 0, -(1 << 63), 9], dtype=torch.int64)
    expected = torch.tensor([5, 7, 1 << 62, (1 << 63) - 1, 9], dtype=torch.int64)
    compare_digests(
        here, expected, ints(3, 4, 9, 1, 3), violations=violations, seq=1 << 40, group=2
    )
    assert found(violations) == [
        (CHANGED, 2, 1, -(1 << 63), 1 << 40),
        (CHANGED, 2, 4, -7, 1 << 40),
        (CHANGED, 2, 9, 0, 1 << 40),
    ]


# The row that may write each of five pages of 4 tokens: page 0 is for padding, page 3 is nobody's.
WRITERS = ints(0, 7, 7, 0, 2)


def test_strange_slots_are_found_by_hand():
    """Of another row, of nobody, outside on either side; padding and the row's own are not."""
    violations = Violations.create("cpu")
    slots = ints(0, 3, 4, 11, 12, 16, 19, 20, -1, -4)
    rows = ints(7, 1, 7, 7, 7, 7, 2, 7, 7, 7)
    check_stores(slots, rows, WRITERS, 4, violations=violations, seq=11, group=1)
    assert found(violations) == [
        (STRANGE, 1, -1, -4, 11),
        (STRANGE, 1, -1, -1, 11),
        (STRANGE, 1, -1, 20, 11),
        (STRANGE, 1, 3, 12, 11),
        (STRANGE, 1, 4, 16, 11),
    ]


def test_slots_of_rows_that_nobody_named():
    """Any row will do, and some row must be."""
    violations = Violations.create("cpu")
    check_stores(ints(1, 4, 12, 16, 99), None, WRITERS, 4, violations=violations, seq=0)
    assert found(violations) == [(STRANGE, 0, -1, 99, 0), (STRANGE, 0, 3, 12, 0)]


def test_findings_beyond_the_room_are_counted():
    """The buffer holds the first few, and says how many there were."""
    violations = Violations.create("cpu", 2)
    check_stores(ints(12, 13, 14), None, WRITERS, 4, violations=violations, seq=0)
    compare_digests(
        torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64), ints(1, 2),
        violations=violations, seq=0,
    )  # fmt: skip
    assert int(violations.count) == 5
    assert len(violations.read()) == 2


def test_what_cannot_be_compared_is_refused():
    """Other dtypes, other lengths, pages of no tokens."""
    violations = Violations.create("cpu")
    digests = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(KernelError, match="found is int64"):
        compare_digests(digests.int(), digests, ints(1, 2), violations=violations, seq=0)
    with pytest.raises(KernelError, match=r"expected has the shape \[1\]"):
        compare_digests(digests[:1], digests, ints(1), violations=violations, seq=0)
    with pytest.raises(KernelError, match="slots is int32 or int64"):
        check_stores(digests.float(), None, WRITERS, 4, violations=violations, seq=0)
    with pytest.raises(KernelError, match=r"rows has the shape \[2\]"):
        check_stores(ints(1, 2), ints(1), WRITERS, 4, violations=violations, seq=0)
    with pytest.raises(KernelError, match="pages of 0 tokens"):
        check_stores(ints(1), None, WRITERS, 0, violations=violations, seq=0)
    assert not violations.read()
