"""A full disk: a clean error, or a counted gap that ends with a snapshot."""

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from log_samples import (
    ONE_GROUP,
    FakeSnapshot,
    append_all,
    plain_groups,
    same_events,
    same_state,
    settled,
    start,
    state_of,
)

from kvlife.errors import LogFull
from kvlife.log import Gap, open_run
from kvlife.log import segment as segment_module

HERE = Path(__file__).resolve().parent
GROUPS = plain_groups(2000)
EVENTS = [group[0] for group in GROUPS]


class Disk:
    """Stands in for the disk where space is reserved; `full` makes it refuse."""

    def __init__(self, monkeypatch):
        self.full = False
        self._reserve = segment_module.reserve_space
        monkeypatch.setattr(segment_module, "reserve_space", self.reserve)

    def reserve(self, fd, num_bytes):
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._reserve(fd, num_bytes)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


def append_until_full(writer, first=0):
    """Append from GROUPS until the log refuses; returns the seq that was refused."""
    for seq in range(first, len(GROUPS)):
        try:
            writer.append(seq, seq, seq, GROUPS[seq])
        except LogFull:
            return seq
    raise AssertionError("the disk never was full")


def test_a_refused_append_leaves_the_log_as_it_was(tmp_path, disk):
    """Nothing of the group is read later, and when there is space the same group fits."""
    writer = start(tmp_path, ONE_GROUP, segment_bytes=4096)
    disk.full = True
    settled(writer)
    seq = append_until_full(writer)
    for _ in range(3):
        with pytest.raises(LogFull, match="no space for 4096 bytes of the log"):
            writer.append(seq, seq, seq, GROUPS[seq] * 30)
    assert open_run(tmp_path).next_seq == seq
    assert not list(tmp_path.glob("*/*.tmp"))
    disk.full = False
    append_all(writer, GROUPS[seq:], step=seq)
    writer.close()
    run = open_run(tmp_path)
    assert same_events([r.event for r in run.events()], EVENTS)
    assert not run.gaps


def test_a_small_group_may_still_fit(tmp_path, disk):
    """After a group that was too large, a smaller one goes into what room is left."""
    writer = start(tmp_path, ONE_GROUP, segment_bytes=4096)
    settled(writer)
    writer._run.thread._spares.get(timeout=5).discard()
    disk.full = True
    append_all(writer, GROUPS[:20])
    with pytest.raises(LogFull):
        writer.append(20, 20, 20, GROUPS[20] * 3000)
    append_all(writer, GROUPS[20:40], step=20)
    writer.close()
    assert same_events([r.event for r in open_run(tmp_path).events()], EVENTS[:40])


def test_a_start_on_a_full_disk_leaves_nothing(tmp_path, disk):
    """The run that could not be begun is taken back."""
    disk.full = True
    with pytest.raises(LogFull):
        start(tmp_path, ONE_GROUP)
    assert not list(tmp_path.iterdir())


def test_a_gap_is_counted_and_ends_with_a_snapshot(tmp_path, disk):
    """Under `gap` appends go on; the log does when a state can be written, and readers see it."""
    writer = start(tmp_path, ONE_GROUP, segment_bytes=4096, on_full="gap")
    settled(writer)
    disk.full = True
    append_all(writer, GROUPS[:900])
    assert writer.num_gaps == 1
    first = writer.num_events
    assert writer.gap_events == 900 - first
    assert writer.wants_snapshot
    refused = FakeSnapshot(900)
    writer.snapshot(refused)
    assert refused.released == 1
    assert not writer.wants_snapshot
    disk.full = False
    step = 900
    while not writer.wants_snapshot:
        append_all(writer, GROUPS[step : step + 1], step=step)
        step += 1
    writer.snapshot(FakeSnapshot(step))
    settled(writer)
    append_all(writer, GROUPS[step : step + 50], step=step)
    writer.close(3)
    run = open_run(tmp_path)
    assert run.gaps == [Gap(first_seq=first, next_seq=step)]
    assert run.snapshots == [step]
    assert same_state(run.snapshot(step), state_of(step))
    got = list(run.events())
    seqs = [*range(first), *range(step, step + 50)]
    assert [r.seq for r in got] == seqs
    assert same_events([r.event for r in got], [EVENTS[seq] for seq in seqs])
    assert [r.seq for r in run.events(first + 5, step + 3)] == [step, step + 1, step + 2]
    assert run.closed.num_events == len(seqs)


def test_a_run_may_end_in_a_gap(tmp_path, disk):
    """The end mark still fits, and says that events are missing before it."""
    writer = start(tmp_path, ONE_GROUP, segment_bytes=4096, on_full="gap")
    settled(writer)
    disk.full = True
    append_all(writer, GROUPS[:900])
    first = writer.num_events
    writer.close(3)
    run = open_run(tmp_path)
    assert run.gaps == [Gap(first_seq=first, next_seq=900)]
    assert (run.next_seq, run.closed.digest, run.closed.num_events) == (900, 3, first)
    assert same_events([r.event for r in run.events()], EVENTS[:first])


def test_a_segment_that_cannot_be_compressed_stays(tmp_path, monkeypatch):
    """No space for the compressed file: the raw one is kept, and the problem told."""
    writer = start(tmp_path, ONE_GROUP, segment_bytes=4096)

    def refuse(_fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", refuse)
        append_all(writer, GROUPS[:600])
        settled(writer)
    writer.close()
    assert any("no space" in problem for problem in writer.problems)
    assert list(tmp_path.glob("*/*.seg"))
    assert not list(tmp_path.glob("*/*.tmp"))
    assert same_events([r.event for r in open_run(tmp_path).events()], EVENTS[:600])


def test_a_real_limit_is_a_clean_error(tmp_path):
    """The kernel's own refusal, by a limit on the size of files, is the same `LogFull`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    script = f"""
import resource
from log_samples import *
from kvlife.errors import LogFull
writer = start({str(tmp_path)!r}, ONE_GROUP, segment_bytes=1 << 16)
settled(writer)
writer._run.thread._spares.get(timeout=5).discard()
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, {hard}))
groups = plain_groups(5000)
for seq, group in enumerate(groups):
    try:
        writer.append(seq, seq, seq, group)
    except LogFull:
        print(seq)
        break
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE)])}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert soft
    assert done.stdout, done.stderr
    seq = int(done.stdout)
    run = open_run(tmp_path)
    assert run.next_seq == seq
    assert same_events(
        [r.event for r in run.events()], EVENTS[:0] + [g[0] for g in plain_groups(5000)[:seq]]
    )
