"""A long simulated run under retention: disk and memory stay flat, and what is kept replays."""

import os
import random
from pathlib import Path

import pytest
from small_runs import assert_clean, plan_of, replayed_run, writer_of

from kvlife import Checker, KvEngine
from kvlife.log import Retention, open_run
from kvlife.simulation import Scheduler

KEEP_BYTES = 1 << 13
SEGMENT_BYTES = 1 << 12
WRITTEN_BYTES = 100 * KEEP_BYTES
RING_BYTES = 1 << 16


def bytes_on_disk(path):
    """What the run's files take now; one that goes while this looks takes nothing."""
    total = 0
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                total += entry.stat().st_size
            except FileNotFoundError:
                continue
    return total


def resident_bytes():
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class LongRun:
    """A simulation driven step by step, with the digest of the state after each of its steps."""

    def __init__(self, path, seed, retention, *, num_pages=160, **options):
        self.log = writer_of(path, retention=retention, segment_bytes=SEGMENT_BYTES, **options)
        self.plan = plan_of(
            self.log, kind=1, num_requests=3000, num_pages=num_pages, seed=seed % 1000
        )
        self.engine = KvEngine(
            self.plan.pools, log=self.log, checker=Checker(), key_seed=1, clock=self.plan.clock
        )
        self._loop = Scheduler(
            self.engine, self.plan.workload, self.plan.config, clock=self.plan.clock
        )
        self.path = next(path.iterdir())
        self.digests = {}

    def write(self, log_bytes):
        """Go on until so many bytes of events are written; the workload must suffice for them."""
        while self.log.log_bytes < log_bytes:
            assert self._loop.advance()
            self.digests[self.engine.next_seq] = self.engine.ledger.digest()


def assert_each_moment_replays(run, chance):
    """Up to any moment that is kept, and from it, the replay has the state that was live."""
    reader = open_run(run.path)
    assert_clean(replayed_run(run.path), reader, compared=False)
    kept = [seq for seq in run.digests if reader.begins_at < seq <= reader.next_seq]
    for seq in [kept[0], *chance.sample(kept, 2)]:
        outcome = replayed_run(run.path, last_seq=seq - 1)
        assert (outcome.next_seq, outcome.found, outcome.differences) == (seq, (), ())
        assert outcome.digest == run.digests[seq]
        rest = replayed_run(run.path, first_seq=seq - 1)
        assert rest.first_seq <= seq - 1
        assert (rest.next_seq, rest.found, rest.differences) == (reader.next_seq, (), ())
        assert rest.digest == run.digests[reader.next_seq]
    for seq in reader.snapshots:
        assert reader.snapshot(seq).digest == run.digests.get(seq, reader.snapshot(seq).digest)
    return reader


def test_a_hundred_times_what_is_kept(tmp_path, seed):
    """Disk and memory are flat over 100 times `keep_bytes`, and each moment kept replays."""
    chance = random.Random(seed)
    run = LongRun(tmp_path, seed, Retention(keep_bytes=KEEP_BYTES), compress=False)
    early = None
    for fifth in range(1, 6):
        run.write(fifth * WRITTEN_BYTES // 5)
        run.log.wait()
        # Kept bytes reach back to a snapshot, at most two distances of snapshots before them; then
        # there are the segment in use, the next one, and snapshots of half the events' bytes.
        assert bytes_on_disk(run.path) <= 3 * (KEEP_BYTES + 4 * SEGMENT_BYTES)
        reader = assert_each_moment_replays(run, chance)
        assert reader.begins_at > 0
        early = early or resident_bytes()
        run.digests = {reader.next_seq: run.digests[reader.next_seq]}
    assert resident_bytes() - early < 8 << 20
    assert not run.log.problems
    run.engine.close()
    reader = open_run(run.path)
    outcome = replayed_run(run.path)
    assert_clean(outcome, reader, compared=True)
    assert outcome.digest == run.engine.ledger.digest()


def test_a_flight_recorder_of_a_long_run(tmp_path, seed):
    """A ring never takes more than its bytes, and once it has wrapped each moment replays."""
    chance = random.Random(seed)
    run = LongRun(tmp_path, seed, Retention(ring_bytes=RING_BYTES))
    for round_ in range(1, 9):
        run.write(round_ * RING_BYTES)
        run.log.wait()
        taken = bytes_on_disk(run.path) - (run.path / "header.json").stat().st_size
        assert taken <= RING_BYTES
        reader = assert_each_moment_replays(run, chance)
        assert reader.begins_at > 0
    run.engine.close()
    assert_clean(replayed_run(run.path), open_run(run.path), compared=True)


def test_a_ring_always_has_a_state_to_start_from(tmp_path, seed):
    """Where a snapshot takes as many bytes as the ring's events, there is one in it nonetheless."""
    run = LongRun(tmp_path, seed, Retention(ring_bytes=RING_BYTES), num_pages=400)
    for part in range(2, 40):
        run.write(part * RING_BYTES // 16)
        run.log.wait()
        reader = open_run(run.path)
        assert reader.begins_at == 0 or reader.snapshots
    assert reader.begins_at > 0
    assert not run.log.problems
    run.engine.close()
    assert_clean(replayed_run(run.path), open_run(run.path), compared=True)


def test_seconds_of_history(tmp_path, seed):
    """With `keep_seconds` the history reaches back so far in the run's own time."""
    run = LongRun(tmp_path, seed, Retention(keep_seconds=2.0))
    run.write(WRITTEN_BYTES // 8)
    run.log.wait()
    reader = assert_each_moment_replays(run, random.Random(seed))
    assert reader.begins_at > 0
    first = next(reader.events(reader.begins_at))
    assert run.plan.clock.now_ns - first.time_ns >= 2_000_000_000
    run.engine.close()


@pytest.mark.parametrize(
    "retention", [Retention(keep_bytes=KEEP_BYTES), Retention(ring_bytes=1 << 16)]
)
def test_a_reader_beside_a_writing_engine(tmp_path, seed, retention):
    """What is read of a live run is a state that it had, whatever its writer removes meanwhile."""
    run = LongRun(tmp_path, seed, retention)
    num_read = 0
    for part in range(1, 40):
        run.write(part * 3 * SEGMENT_BYTES // 2)
        # The log's own thread is at work: nobody waits for it.
        reader = open_run(run.path)
        assert reader.next_seq == run.engine.next_seq
        num_read += reader.live
    assert num_read == 39
    run.engine.close()
