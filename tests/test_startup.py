"""What starting costs: which libraries an import loads, and how long an import and a help take."""

import importlib
import os
import statistics
import subprocess
import sys

import kvlife
import kvlife.errors

HEAVY = {"torch", "triton", "rich", "cyclopts", "structlog"}
NUM_RUNS = 9
MAX_ROUNDS = 3
MAX_IMPORT_S = 0.10
MAX_HELP_S = 0.35


def run_python(*arguments):
    """Run a fresh interpreter that, as a user's would, keeps the bytecode of what it imports."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True
    ).stdout


def seconds_of(*arguments):
    """CPU seconds: what the clock shows beside them is other processes' work."""
    before = os.times()
    run_python(*arguments)
    after = os.times()
    user = after.children_user - before.children_user
    return user + after.children_system - before.children_system


def loaded_by(statement):
    listing = run_python("-c", f"{statement}; import sys; print(*sys.modules)")
    return {name.partition(".")[0] for name in listing.split()}


def test_the_probe_for_heavy_libraries_sees_one_that_is_loaded():
    """An import of rich shows up, so that the tests below can fail."""
    assert loaded_by("import rich") & HEAVY == {"rich"}


def test_import_loads_no_heavy_library():
    """`import kvlife` loads none of the libraries that only some of its parts need."""
    assert loaded_by("import kvlife") & HEAVY == set()


def test_the_exports_load_no_terminal_and_no_tensor_library():
    """Who embeds the engine, and asks for every export, pays for no command line and no torch."""
    assert loaded_by("from kvlife import *") & {"torch", "triton", "rich", "cyclopts"} == set()


def assert_takes_at_most(bar_s, measure):
    """The best of up to three medians of nine runs each meets the bar.

    Other work on the machine can only add to it, so one quiet round is enough to know.
    """
    medians = []
    while not medians or (min(medians) > bar_s and len(medians) < MAX_ROUNDS):
        medians.append(statistics.median(measure() for _ in range(NUM_RUNS)))
    assert min(medians) <= bar_s, medians


def test_import_takes_little_more_than_numpy():
    """`import kvlife` takes at most 0.10 s more than `import numpy`, run in turns."""
    seconds_of("-c", "import kvlife, numpy")
    assert_takes_at_most(
        MAX_IMPORT_S,
        lambda: seconds_of("-c", "import kvlife") - seconds_of("-c", "import numpy"),
    )


def test_help_answers_at_once():
    """`kvlife --help` answers within 0.35 s."""
    assert "simulate" in run_python("-m", "kvlife.replay", "--help")
    assert_takes_at_most(MAX_HELP_S, lambda: seconds_of("-m", "kvlife.replay", "--help"))


def test_every_export_is_what_its_module_defines():
    """Each name of `__all__` is reached, and is the very object of the module that is its home."""
    for name in set(kvlife.__all__) - {"__version__", "events"}:
        home = importlib.import_module(kvlife._HOMES.get(name, "kvlife.errors"))
        assert getattr(kvlife, name) is getattr(home, name)


def test_every_error_is_exported():
    """No error class is left out of the package's exports."""
    errors = {
        name
        for name, value in vars(kvlife.errors).items()
        if isinstance(value, type) and issubclass(value, kvlife.errors.KvLifeError)
    }
    assert errors <= set(kvlife.__all__)


def test_an_unknown_name_is_an_attribute_error():
    """A name that is not exported is refused as Python refuses it elsewhere."""
    assert not hasattr(kvlife, "KvEnigne")
