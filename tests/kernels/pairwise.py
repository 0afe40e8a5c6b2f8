"""Few cases that hold each pair of values of any two axes."""

import itertools


def product_of(axes):
    """Each case there is: one dict of a value for each axis."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def pairwise(axes):
    """Cases in which any value of an axis meets any value of any other: greedy, always the same."""
    names = list(axes)
    if len(names) < 2:
        return product_of(axes)
    wanted = {
        ((one, x), (other, y))
        for one, other in itertools.combinations(range(len(names)), 2)
        for x in range(len(axes[names[one]]))
        for y in range(len(axes[names[other]]))
    }
    cases = []
    while wanted:
        case = dict(min(wanted))
        for axis in range(len(names)):
            if axis not in case:
                values = range(len(axes[names[axis]]))
                case[axis] = max(values, key=lambda value: len(_met(case, axis, value) & wanted))
        wanted -= _pairs_of(case)
        cases.append({names[axis]: axes[names[axis]][case[axis]] for axis in sorted(case)})
    return cases


def _met(case, axis, value):
    """The pairs of a value of one more axis with those that the case has."""
    return {tuple(sorted((pair, (axis, value)))) for pair in case.items()}


def _pairs_of(case):
    return set(itertools.combinations(sorted(case.items()), 2))
