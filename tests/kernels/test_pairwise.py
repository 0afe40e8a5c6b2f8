"""The generator of cases: every pair is met, in far fewer cases than there are."""

import itertools

import pytest
from pairwise import pairwise, product_of

AXES = {"size": (1, 16, 64, 256), "batch": (0, 1, 3, 1000), "kind": "abc", "strided": (0, 1)}


def pairs_of(case):
    return set(itertools.combinations(case.items(), 2))


@pytest.mark.parametrize(
    "axes", [AXES, {"one": (1, 2)}, {"one": (1,), "two": (2,), "three": (3, 4)}]
)
def test_each_pair_of_values_is_met(axes):
    """Each pair of values of two axes stands in a case, and each case has a value of each axis."""
    cases = pairwise(axes)
    assert all(list(case) == list(axes) for case in cases)
    met = set().union(*map(pairs_of, cases))
    assert met == set().union(*map(pairs_of, product_of(axes)))


def test_pairs_take_few_cases():
    """Axes of 4, 4, 3 and 2 values need 16 cases at least, of 96; a greedy choice comes near."""
    assert len(product_of(AXES)) == 96
    assert len(pairwise(AXES)) <= 20
