"""Faults out of the table, each placed in a simulated log: shrunk to a dozen events at most."""

import sys
from pathlib import Path

import pytest

from kvlife.errors import ConfigError
from kvlife.log import open_run
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.shrinking import Program, Shrinker, recorded_culprit, run_trial, slice_run
from kvlife.testing.faults import FAULTS, Kind, hosting, write_faulty_run

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from fault_runs import KINDS, record, record_backups

MAX_EVENTS = 12
IN_EVENTS = [name for name, fault in FAULTS.items() if fault.kind != Kind.COLUMNS]
# Of each family one; a soak takes them all.
SOME = [
    "allocated-a-page-in-use",
    "eviction-lost",
    "release-one-page-too-few",
    "evicted-while-referenced",
    "cursor-by-the-scheduled-length",
    "session-saved-untrimmed",
    "backup-on-a-host-page-in-use",
    "host-page-of-another-given-back",
]
# These need a host that keeps what requests had.
ON_THE_HOST = {fault.name for fault in hosting.FAULTS.found}


def pytest_generate_tests(metafunc):
    """All faults that lie in events under a soak, else some."""
    if "name" in metafunc.fixturenames:
        soak = metafunc.config.getoption("hypothesis_profile") == "soak"
        metafunc.parametrize("name", IN_EVENTS if soak else SOME)


@pytest.fixture(scope="module")
def sound_run(tmp_path_factory):
    """A run with a window, sessions, overlap and aborts."""
    return open_run(record(tmp_path_factory.mktemp("sound"), KINDS[0], 40, seed=5))


@pytest.fixture(scope="module")
def backed_up_run(tmp_path_factory):
    """A run in which many requests wait with a backup on the host."""
    return open_run(record_backups(tmp_path_factory.mktemp("host"), 6, 40, seed=5))


def shrunk(path):
    """The trial of what a log is shrunk to: small, whole, and it breaks the same again."""
    timeline = Timeline(open_run(path))
    culprit = recorded_culprit(timeline, None)
    shrinker = Shrinker(slice_run(timeline, culprit, lambda _num: None))
    shrinker.run()
    assert shrinker.complete
    assert len(shrinker.trial.events) + 1 <= MAX_EVENTS
    again = run_trial(Program.of(shrinker.best.config, shrinker.trial.events, shrinker.trial.last))
    assert again.finding.id == culprit.invariant
    return again


@pytest.mark.soak
def test_a_fault_is_shrunk_to_a_dozen_events(tmp_path, sound_run, backed_up_run, seed, name):
    """What is left breaks the same first, in twelve events at most, and nothing more can go."""
    run = backed_up_run if name in ON_THE_HOST else sound_run
    try:
        placed = write_faulty_run(run, FAULTS[name], tmp_path / "log", seed=seed)
    except ConfigError:
        pytest.skip("this run has no place for it")
    shrunk(placed.path)


def test_a_host_page_goes_to_the_request_that_keeps_it(tmp_path, backed_up_run):
    """Here another request had the page before, and came back by an event that plays no part."""
    fault = FAULTS["backup-on-a-host-page-in-use"]
    placed = write_faulty_run(backed_up_run, fault, tmp_path / "log", seed=3880835503)
    assert shrunk(placed.path).finding.id == "page-double-alloc"


def test_a_resumption_brings_the_life_before_it(tmp_path, backed_up_run):
    """Here the request whose host page is given back was retracted, resumed and retracted again."""
    fault = FAULTS["host-page-of-another-given-back"]
    placed = write_faulty_run(backed_up_run, fault, tmp_path / "log", seed=2215525343)
    assert shrunk(placed.path).finding.id == "page-freed-by-stranger"
