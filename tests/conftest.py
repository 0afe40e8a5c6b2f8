"""What all tests share: seeds to repeat a run with, the traces, and a count of what skipped."""

from __future__ import annotations

import os
import secrets
import zlib
from collections import Counter
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
TRACES = Path(os.environ.get("KVLIFE_TRACES", ROOT.parent / "shared" / "traces"))
MODELS = Path(os.environ.get("KVLIFE_MODELS", ROOT.parent / "shared" / "models"))

hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.register_profile(
    "soak", deadline=None, print_blob=True, max_examples=2000, stateful_step_count=200
)
hypothesis.settings.load_profile("default")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Choose the seed of the run; the workers of xdist inherit it through the environment."""
    seed = os.environ.setdefault("KVLIFE_SEED", str(secrets.randbits(32)))
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = seed


def pytest_report_header(config):
    """Say at the top how to run the same random tests again."""
    seed = os.environ["KVLIFE_SEED"]
    return f"random tests: KVLIFE_SEED={seed} repeats this run; traces: {TRACES}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Give each failed random test the command that repeats it."""
    report = yield
    random = "seed" in getattr(item, "fixturenames", ()) or item.get_closest_marker("hypothesis")
    if report.failed and random:
        seed = os.environ["KVLIFE_SEED"]
        command = f"KVLIFE_SEED={seed} .venv/bin/python -m pytest '{item.nodeid}'"
        report.sections.append(("repeat this random test with", command))
    return report


def pytest_terminal_summary(terminalreporter):
    """Count the skipped tests by reason, so that a run that left much out cannot pass for whole."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in skipped
        if isinstance(report.longrepr, tuple)
    )
    terminalreporter.section("what was skipped")
    if not skipped:
        terminalreporter.write_line("nothing: every test that was asked for ran")
    for reason, num in reasons.most_common():
        terminalreporter.write_line(f"{num} skipped: {reason}")


@pytest.fixture
def seed(request):
    """A seed of this test's own, the same whenever the run's KVLIFE_SEED is the same."""
    return zlib.crc32(f"{os.environ['KVLIFE_SEED']} {request.node.nodeid}".encode())


@pytest.fixture(scope="session")
def traces():
    """The folder of workload traces (`mooncake/...`); a test that asks for it skips without it."""
    if not TRACES.is_dir():
        pytest.skip(f"no traces at {TRACES}: set KVLIFE_TRACES to the folder that holds them")
    return TRACES


@pytest.fixture(scope="session")
def models():
    """The folder of model configs (`llama-3.1-8b.json`, ...); a test that asks skips without it."""
    if not MODELS.is_dir():
        pytest.skip(
            f"no model configs at {MODELS}: set KVLIFE_MODELS to the folder that holds them"
        )
    return MODELS
