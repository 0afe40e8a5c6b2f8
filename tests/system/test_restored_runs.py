"""Every snapshot of a simulated run is the state that the events lead to, and leads on from it."""

from itertools import pairwise

import attrs
import pytest
from small_runs import assert_clean, plan_of, replayed_run, writer_of

from kvlife.ledger import Ledger
from kvlife.log import open_run
from kvlife.simulation import simulate


@pytest.fixture(params=range(4))
def run(request, tmp_path):
    """A run under pressure with evictions and a handful of snapshots."""
    log = writer_of(tmp_path, snapshot_every_bytes=1 << 10)
    tight = {"num_pages": 60, "headroom_tokens": 0, "max_running": 10}
    outcome = simulate(plan_of(log, kind=request.param, num_requests=120, seed=2, **tight))
    assert outcome.stats.evicted_pages > 100
    reader = open_run(tmp_path)
    assert len(reader.snapshots) >= 4
    return reader


def test_each_snapshot_restores_to_the_state_it_was_taken_of(run):
    """A restored ledger has the snapshot's digest, and the pools' audit finds nothing in it."""
    for seq in run.snapshots:
        state = run.snapshot(seq)
        ledger = Ledger.restore(run.header.config, state)
        assert (ledger.digest(), ledger.next_seq) == (state.digest, seq)
        outcome = replayed_run(run.path, first_seq=seq, last_seq=seq)
        assert (outcome.first_seq, outcome.found, outcome.differences) == (seq, (), ())


def test_each_interval_ends_in_the_next_snapshot(run):
    """From one snapshot, the events up to the next one lead to just that state."""
    seqs = [0, *run.snapshots, run.next_seq]
    last = replayed_run(run.path).digest
    for start, stop in pairwise(seqs):
        outcome = replayed_run(run.path, first_seq=start, last_seq=stop - 1)
        wanted = run.snapshot(stop).digest if stop in run.snapshots else last
        assert (outcome.first_seq, outcome.next_seq) == (start, stop)
        assert outcome.digest == wanted
        assert (outcome.found, outcome.differences) == ((), ())
        assert outcome.num_events == outcome.checked.events == stop - start


def test_two_processes_find_what_one_finds(run):
    """`--jobs 2` says the same as one process, of the whole and of a part."""
    alone = replayed_run(run.path)
    assert_clean(alone, run, compared=True)
    shared = replayed_run(run.path, jobs=2)
    assert shared.jobs == 2
    # Each part recounts nothing but its events, so that only the audit at the end is the same.
    assert attrs.evolve(shared, jobs=1) == alone
    part = {"first_seq": run.snapshots[0] + 3, "last_seq": run.snapshots[-1] + 2}
    one, two = replayed_run(run.path, **part), replayed_run(run.path, **part, jobs=2)
    assert attrs.evolve(two, jobs=1) == one
    assert one.digest_ok is True
