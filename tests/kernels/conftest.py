"""How the tests of kernels are run: Triton's interpreter has a pytest process of its own.

Triton reads TRITON_INTERPRET when a kernel is decorated, so one process either interprets kernels
or compiles them. `test_interpreted.py` starts a process with the variable for each file of
`interpreted/`, which is collected nowhere else, and of `both/`, which the ordinary run takes by
torch and that process by Triton.
"""

import os

import pytest
from pairwise import pairwise, product_of

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

collect_ignore = [] if INTERPRETED else ["interpreted"]


def pytest_configure(config):
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "axes(**values): give the test a `case` (a dict) for each pair of values of any two axes; "
        "for each combination in `make soak`",
    )


def pytest_generate_tests(metafunc):
    """Make the cases of a test that has axes."""
    marker = metafunc.definition.get_closest_marker("axes")
    if marker is None:
        return
    soaks = metafunc.config.getoption("hypothesis_profile", None) == "soak"
    cases = product_of(marker.kwargs) if soaks else pairwise(marker.kwargs)
    ids = ["-".join(f"{name}={_named(value)}" for name, value in case.items()) for case in cases]
    metafunc.parametrize("case", cases, ids=ids)


def _named(value):
    return getattr(value, "name", None) or getattr(value, "__name__", None) or str(value)


@pytest.fixture(autouse=INTERPRETED)
def by_triton(monkeypatch):
    """In the interpreting process, kernels run wherever a test does not say otherwise."""
    monkeypatch.setenv("KVLIFE_KERNELS", "triton")


def pytest_terminal_summary(terminalreporter):
    """Count the tests that ran in processes of their own."""
    counts = [
        number
        for report in terminalreporter.stats.get("passed", [])
        for name, number in report.user_properties
        if name == "interpreted"
    ]
    if counts:
        terminalreporter.write_line(
            f"{sum(counts)} tests of kernels passed under Triton's interpreter, in "
            f"{len(counts)} processes of their own"
        )
