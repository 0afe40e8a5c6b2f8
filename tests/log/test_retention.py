"""How much history is kept: disk and memory flat, all that is kept replayable."""

import gc
import pathlib
import tracemalloc

import pytest
from golden_v1 import NONE
from log_samples import (
    ONE_GROUP,
    FakeSnapshot,
    append_all,
    plain_groups,
    same_events,
    settled,
    start,
)

from kvlife.errors import LogError
from kvlife.events import Released
from kvlife.log import Retention, open_run

GROUPS = plain_groups(20_000)
KEEP_BYTES = 40_000


def on_disk(root):
    return sum(path.stat().st_size for path in root.glob("*/*") if path.suffix != ".tmp")


def write_round(writer, num, *, spread_ns=1000):
    """Append so many groups, giving snapshots when they are asked for."""
    for _ in range(num):
        seq = writer.next_seq
        writer.append(seq, seq, seq * spread_ns, group_of(seq))
        if writer.wants_snapshot:
            writer.snapshot(FakeSnapshot(writer.next_seq, num=20))


def group_of(seq):
    """Decoding steps, and now and then the end of a request that is named just once."""
    if seq % 10:
        return GROUPS[seq % len(GROUPS)]
    return [Released(f"a request by the name of {seq}", None, "aborted", (NONE,), NONE)]


def check_history(root):
    """History is whole from its beginning, which is the empty state or a snapshot."""
    run = open_run(root)
    assert run.begins_at == 0 or run.begins_at in run.snapshots
    assert not run.warnings
    got = list(run.events())
    assert [r.seq for r in got] == list(range(run.begins_at, run.next_seq))
    wanted = [group_of(r.seq)[0] for r in got]
    assert same_events([r.event for r in got], wanted)
    for seq in run.snapshots:
        assert run.snapshot(seq).digest == seq
    return run


@pytest.mark.parametrize("compress", [True, False])
def test_disk_is_flat_over_a_hundred_times_the_bytes(tmp_path, compress):
    """With `keep_bytes` the disk stops growing, and each moment that is kept can be replayed."""
    retention = Retention(keep_bytes=KEEP_BYTES)
    writer = start(tmp_path, ONE_GROUP, retention=retention, segment_bytes=4096, compress=compress)
    disks, lasts = [], []
    while writer.log_bytes < 100 * KEEP_BYTES:
        for _ in range(10):
            write_round(writer, 1000)
            settled(writer)
        disks.append(on_disk(tmp_path))
        run = check_history(tmp_path)
        lasts.append(run.next_seq - run.begins_at)
    writer.close()
    assert len(disks) >= 15
    assert max(disks[5:]) <= 2.5 * KEEP_BYTES
    assert min(disks[5:]) >= KEEP_BYTES
    assert max(lasts[5:]) < 3 * min(lasts[5:])
    run = check_history(tmp_path)
    with pytest.raises(LogError, match=f"seq 0 is gone, history begins at {run.begins_at}"):
        list(run.events(0))


@pytest.mark.parametrize("kept", ["keep_bytes", "ring_bytes"])
def test_memory_is_flat(tmp_path, kept):
    """After a first stretch nothing that the writer keeps grows with what was written."""
    retention = Retention(**{kept: KEEP_BYTES if kept == "keep_bytes" else 1 << 18})
    tracemalloc.start()
    try:
        writer = start(tmp_path, ONE_GROUP, retention=retention, segment_bytes=4096)
        held = [held_after_a_round(writer) for _ in range(12)]
        writer.close()
    finally:
        tracemalloc.stop()
    assert min(held[8:]) - min(held[:4]) < 16_000, held


def held_after_a_round(writer):
    """Bytes that live after one more round.

    What waits for the cycle collector is not counted, nor is Python's own table of strings,
    which pathlib fills and which grows in one leap of megabytes, whenever it is full.
    """
    write_round(writer, 10_000)
    settled(writer)
    gc.collect()
    here = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, pathlib.__file__)])
    return sum(trace.size for trace in here.traces)


def test_seconds_are_those_of_the_events(tmp_path):
    """With `keep_seconds` history reaches back at least so far from the last event."""
    retention = Retention(keep_seconds=3)
    writer = start(
        tmp_path, ONE_GROUP, retention=retention, segment_bytes=4096, snapshot_every_bytes=4096
    )
    for _ in range(20):
        write_round(writer, 500, spread_ns=1_000_000)
        settled(writer)
    run = check_history(tmp_path)
    writer.close()
    assert 3000 <= run.next_seq - run.begins_at <= 5000


def test_a_ring_never_takes_more_than_its_bytes(tmp_path):
    """The flight recorder reserves its space at the start, and what it holds can be replayed."""
    ring = 1 << 17
    writer = start(tmp_path, ONE_GROUP, retention=Retention(ring_bytes=ring))

    def all_bytes():
        return sum(p.stat().st_blocks * 512 for p in tmp_path.glob("*/*") if p.suffix != ".json")

    reserved = all_bytes()
    spans = []
    for _ in range(20):
        write_round(writer, 2000)
        settled(writer)
        assert all_bytes() <= ring
        run = check_history(tmp_path)
        spans.append(run.next_seq - run.begins_at)
    assert reserved >= ring * 7 // 8
    assert min(spans[5:]) > 500
    assert run.begins_at > 0
    assert not writer.problems
    writer.close(4)
    assert check_history(tmp_path).closed.digest == 4


def test_a_ring_without_snapshots_says_so(tmp_path):
    """Where nobody gave states, what is left can be shown, not replayed."""
    writer = start(tmp_path, ONE_GROUP, retention=Retention(ring_bytes=1 << 17))
    append_all(writer, GROUPS[:12_000])
    writer.close()
    run = open_run(tmp_path)
    assert run.begins_at > 0
    assert "cannot" in run.warnings[0] or "not replayed" in run.warnings[0]
    got = list(run.events())
    assert got[-1].seq == 11_999
    wanted = [group[0] for group in GROUPS[run.begins_at : 12_000]]
    assert same_events([r.event for r in got], wanted)


def test_a_group_too_large_for_a_ring_is_refused(tmp_path):
    """A ring's segments cannot grow: the error says what to do, and the log goes on."""
    writer = start(tmp_path, ONE_GROUP, retention=Retention(ring_bytes=1 << 16))
    with pytest.raises(LogError, match="give the ring more bytes"):
        writer.append(0, 0, 0, GROUPS[1] * 3000)
    append_all(writer, GROUPS[:10])
    writer.close()
    assert open_run(tmp_path).next_seq == 10


def test_a_snapshot_too_large_for_a_ring_is_told(tmp_path):
    """It is left out, its room stays reserved, and the next one that fits is taken."""
    writer = start(tmp_path, ONE_GROUP, retention=Retention(ring_bytes=1 << 16))
    append_all(writer, GROUPS[:10])
    large = FakeSnapshot(10, num=30_000)
    writer.snapshot(large)
    settled(writer)
    assert large.released == 1
    assert "give the ring more bytes" in writer.problems[0]
    writer.snapshot(FakeSnapshot(10, num=10))
    writer.close()
    assert open_run(tmp_path).snapshots == [10]
