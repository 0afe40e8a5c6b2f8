"""Runs with faults in them: the replay finds what the run found, and comes to the same state."""

import json
import random

import attrs
import pytest
from foreign_allocator import PAGE_SIZE, ForeignAllocator, LeakyAllocator, live
from forged_events import FORGERIES as FAULTS
from small_runs import assert_clean, recorded_run, replayed_run, writer_of

from kvlife import Checker, Observer, PoolConfig
from kvlife.errors import EventError, InvariantViolation
from kvlife.events import Released
from kvlife.log import open_run
from kvlife.replay.cli import main

FOREIGN = PoolConfig(page_size=PAGE_SIZE, num_pages=48, max_requests=10, max_context_len=160)


def observed(path, config, groups, policy):
    """Report groups to an observer up to the end or the first violation that ends it."""
    findings = []
    checker = Checker(policy=policy, on_violation=findings.append)
    log = writer_of(path, snapshot_every_bytes=1 << 10, segment_bytes=1 << 12)
    observer = Observer(config, log=log, checker=checker, clock=lambda: 0)
    try:
        for group in groups:
            try:
                observer.observe(*group)
            except EventError:
                continue
            # The snapshots stand at the same places whatever the machine is doing.
            log.wait()
        observer.close()
    except InvariantViolation as violation:
        return observer, findings, violation
    return observer, findings, None


def assert_same_findings(path, observer, findings, **settings):
    """The replay has the findings of the run, each at its seq, and ends in the run's state."""
    outcome = replayed_run(path, **settings)
    assert outcome.differences == ()
    assert outcome.digest == observer.ledger.digest()
    assert outcome.digest_ok is True
    wanted = [(found.id, found.seq, sorted(found.also)) for found in findings]
    assert [(found.id, found.seq, sorted(found.also)) for found in outcome.found] == wanted
    return outcome


def faulty_groups(folder, kind, seed, num_faults):
    """The groups of a simulated run, a few things in them changed, left out or repeated."""
    recorded_run(folder, kind=kind, num_requests=30, seed=1)
    run = open_run(folder)
    groups = [[item.event for item in group] for group in run.groups()]
    choice = random.Random(seed)
    for _ in range(num_faults):
        choice.choice(FAULTS)(groups, choice)
    return run.header.config, groups


def test_a_foreign_allocator_replays(tmp_path, seed):
    """Facts of an allocator of another making fold and replay as those of an engine."""
    allocator = ForeignAllocator(FOREIGN.num_pages, FOREIGN.max_requests)
    groups = live(allocator, seed, 800)
    observer, findings, violation = observed(tmp_path, FOREIGN, groups, "raise")
    assert (findings, violation) == ([], None)
    run = open_run(tmp_path)
    assert len(run.snapshots) > 2
    outcome = replayed_run(tmp_path)
    assert_clean(outcome, run, compared=True)
    assert outcome.digest == observer.ledger.digest()


def test_a_request_released_twice(tmp_path):
    """Under collect the second release is found, applied as written, and found by the replay."""
    groups = list(live(ForeignAllocator(FOREIGN.num_pages, FOREIGN.max_requests), 1, 300))
    at = next(n for n, group in enumerate(groups) if isinstance(group[0], Released))
    groups.insert(at + 1, groups[at])
    observer, findings, _ = observed(tmp_path, FOREIGN, groups, "collect")
    second = sum(map(len, groups[: at + 1]))
    assert (findings[0].id, findings[0].seq) == ("release-once", second)
    outcome = assert_same_findings(tmp_path, observer, findings)
    assert outcome.next_seq == sum(map(len, groups))
    assert_same_findings(tmp_path, observer, findings, jobs=2)


@pytest.mark.parametrize("variant", range(6))
def test_a_leaky_allocator_under_collect(tmp_path, seed, variant):
    """Every fault of a long faulty run is found again, in one process and in two."""
    choice = random.Random(seed)
    allocator = LeakyAllocator(FOREIGN.num_pages, FOREIGN.max_requests, choice)
    groups = live(allocator, seed + variant, 500)
    observer, findings, _ = observed(tmp_path, FOREIGN, groups, "collect")
    assert allocator.num_faults > 5
    assert findings
    assert_same_findings(tmp_path, observer, findings)
    assert_same_findings(tmp_path, observer, findings, jobs=2)
    assert main(["replay", str(tmp_path), "--json"]) == 1


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("variant", range(4))
def test_a_faulty_run_of_an_engine_under_collect(tmp_path, seed, kind, variant):
    """Whatever is wrong with a run's events, the replay finds and folds the same."""
    config, groups = faulty_groups(tmp_path / "sound", kind, seed + variant, 3)
    observer, findings, _ = observed(tmp_path / "log", config, groups, "collect")
    assert_same_findings(tmp_path / "log", observer, findings)
    if variant == 0:
        assert_same_findings(tmp_path / "log", observer, findings, jobs=2)


def without_last_events(outcome):
    """A part begins with a snapshot, which has no last events of what is FREE in it."""

    def known(evidence):
        return {name: value for name, value in evidence.items() if name != "last_events"}

    found = [
        attrs.evolve(
            one,
            evidence=known(one.evidence),
            also={name: known(evidence) for name, evidence in one.also.items()},
        )
        for one in outcome.found
    ]
    return attrs.evolve(outcome, found=tuple(found))


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("variant", range(4))
def test_a_faulty_run_of_an_engine_under_raise(tmp_path, seed, kind, variant, capsys):
    """The first violation ends the log, and the replay ends at the same event, with the same."""
    # Not every change of an event breaks an invariant; of ten in one run some do.
    config, groups = faulty_groups(tmp_path / "sound", kind, seed + variant, 10)
    observer, findings, violation = observed(tmp_path / "log", config, groups, "raise")
    assert violation is not None
    (found,) = findings
    outcome = assert_same_findings(tmp_path / "log", observer, [found])
    assert (outcome.found[0].id, outcome.found[0].seq) == (violation.id, violation.seq)
    assert outcome.found[0].applied == violation.applied
    assert outcome.compared
    assert main(["replay", str(tmp_path / "log"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["violations"][0]["id"] == violation.id
    shared = replayed_run(tmp_path / "log", jobs=2)
    assert without_last_events(attrs.evolve(shared, jobs=1)) == without_last_events(outcome)
