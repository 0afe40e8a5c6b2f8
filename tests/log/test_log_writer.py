"""The writer: appending, its refusals, segments, snapshots, the end."""

import os
import threading

import attrs
import numpy as np
import pytest
from log_samples import (
    CONFIG,
    HEADER,
    ONE_GROUP,
    FakeSnapshot,
    append_all,
    ints,
    plain_groups,
    same_events,
    same_state,
    settled,
    start,
    state_of,
)

from kvlife.errors import ConfigError, EventError, LogError, LogInUse
from kvlife.events import Committed, Evicted, Marked
from kvlife.log import LogWriter, Retention, open_run, runs


def flat(groups):
    return [event for group in groups for event in group]


def read(run):
    return [recorded.event for recorded in open_run(run).events()]


def test_nothing_touches_the_disk_before_the_start(tmp_path):
    """Making a writer makes no folder; starting one makes the first run."""
    writer = LogWriter(tmp_path / "log")
    assert not (tmp_path / "log").exists()
    assert writer.start(HEADER) == tmp_path / "log" / "run-000001"
    writer.close()


def test_what_was_appended_is_read(tmp_path):
    """Events come back in their envelopes: seq without a gap, step and time as given."""
    groups = plain_groups(50)
    with start(tmp_path, ONE_GROUP) as writer:
        append_all(writer, groups)
        assert writer.next_seq == writer.num_events == 50
    recorded = list(open_run(tmp_path).events())
    assert same_events([r.event for r in recorded], flat(groups))
    assert [r.seq for r in recorded] == list(range(50))
    assert [(r.step, r.time_ns) for r in recorded] == [(n, n * 8_000_000) for n in range(50)]


@pytest.mark.parametrize(
    ("steps", "times"),
    [
        ([5, 3, 900, 2**62], [10**18, 10**18 - 5, 10**18 + 2**33, -7]),
        ([0, 255, 511, 255], [0, 2**32 - 1, 2**33, 2**33]),
    ],
)
def test_any_step_and_time_comes_back(tmp_path, steps, times):
    """Steps and times that jump, or go back, take longer heads and are the same."""
    with start(tmp_path) as writer:
        for seq, (step, time_ns) in enumerate(zip(steps, times, strict=True)):
            writer.append(seq, step, time_ns, [Marked("x", False)])
    got = [(r.step, r.time_ns) for r in open_run(tmp_path).events()]
    assert got == list(zip(steps, times, strict=True))


def test_a_group_is_one_record(tmp_path):
    """The events of a group share step and time, and are read as one group."""
    with start(tmp_path) as writer:
        writer.append(0, 1, 2, [Marked("a", False), Marked("b", True)])
        writer.append(2, 3, 4, [Marked("c", False)])
        writer.append(3, 3, 4, [])
    groups = list(open_run(tmp_path).groups())
    assert [[r.event.text for r in group] for group in groups] == [["a", "b"], ["c"]]
    assert [r.seq for r in groups[0]] == [0, 1]


def test_each_start_makes_a_new_run(tmp_path):
    """Runs count up, and an old one is never written again, by the same writer or another."""
    writer = LogWriter(tmp_path)
    for text in ("first", "second"):
        writer.start(HEADER)
        writer.append(0, 0, 0, [Marked(text, False)])
        writer.close()
    assert [path.name for path in runs(tmp_path)] == ["run-000001", "run-000002"]
    assert read(runs(tmp_path)[0])[0].text == "first"
    assert read(tmp_path)[0].text == "second"


def test_a_second_writer_is_kept_out(tmp_path):
    """A run in use, and one that has ended, is refused; beside it there is room for another."""
    first = start(tmp_path)
    with pytest.raises(LogInUse, match="this writer is writing it"):
        first.start(HEADER)
    with pytest.raises(LogInUse, match="another writer holds it"):
        LogWriter(runs(tmp_path)[0]).start(HEADER)
    second = start(tmp_path)
    first.append(0, 0, 0, [Marked("first", False)])
    second.append(0, 0, 0, [Marked("second", False)])
    first.close()
    second.close()
    with pytest.raises(LogInUse, match="it has ended"):
        LogWriter(runs(tmp_path)[0]).start(HEADER)
    assert [read(run)[0].text for run in runs(tmp_path)] == ["first", "second"]


def test_a_refused_event_leaves_the_log_as_it_was(tmp_path):
    """After an `EventError` the same seq is still to come, and what follows is read rightly."""
    groups = plain_groups(12)
    bad = [groups[4][0], Evicted("flush", ())]
    with start(tmp_path, ONE_GROUP) as writer:
        append_all(writer, groups[:6])
        for _ in range(3):
            with pytest.raises(EventError):
                writer.append(6, 0, 0, bad)
        append_all(writer, groups[6:])
    assert same_events(read(tmp_path), flat(groups))


def test_a_broken_off_append_leaves_the_log_as_it_was(tmp_path):
    """An exception in the middle, as a signal handler may raise one, loses nothing later."""
    groups = plain_groups(12)
    writer = start(tmp_path, ONE_GROUP)
    append_all(writer, groups[:6])
    tape = writer._run.tape
    # As if the bytes had been written, and the exception had come before they were counted.
    tape.file.map[tape.state[0] : tape.state[0] + 40] = b"\xff" * 40
    writer._run.encoder.quick[type(groups[6][0])](groups[6][0])
    writer._run.unfinished = True
    append_all(writer, groups[6:])
    writer.close()
    run = open_run(tmp_path)
    assert same_events([r.event for r in run.events()], flat(groups))
    assert not run.warnings


def test_the_wrong_seq_is_refused(tmp_path):
    """Seqs have no gap and no repetition, on the quick path and on the other."""
    groups = plain_groups(8)
    with start(tmp_path, ONE_GROUP) as writer:
        append_all(writer, groups[:4])
        for seq in (3, 5):
            with pytest.raises(LogError, match=f"seq {seq} appended, the next one is 4"):
                writer.append(seq, 0, 0, groups[4])
            with pytest.raises(LogError, match=f"seq {seq} appended, the next one is 4"):
                writer.append(seq, 0, 0, [Marked("x", False)])
        append_all(writer, groups[4:])
    assert same_events(read(tmp_path), flat(groups))


def test_a_log_that_is_not_open_is_refused(tmp_path):
    """Appending before the start and after the end says which of the two it is."""
    writer = LogWriter(tmp_path)
    with pytest.raises(LogError, match="not started"):
        writer.append(0, 0, 0, [Marked("x", False)])
    early = FakeSnapshot(0)
    with pytest.raises(LogError, match="not started"):
        writer.snapshot(early)
    assert early.released == 1
    writer.start(HEADER)
    writer.close(7)
    writer.close(8)
    with pytest.raises(LogError, match="closed"):
        writer.append(0, 0, 0, [Marked("x", False)])
    assert open_run(tmp_path).closed.digest == 7


@pytest.mark.parametrize("compress", [True, False])
def test_many_segments_read_as_one(tmp_path, compress):
    """Groups go on in the next segment; sealed ones are compressed, or cut to their size."""
    groups = plain_groups(1200)
    with start(tmp_path, ONE_GROUP, segment_bytes=4096, compress=compress) as writer:
        append_all(writer, groups)
        log_bytes = writer.log_bytes
    names = sorted(path.name for path in runs(tmp_path)[0].iterdir())
    segments = [name for name in names if ".seg" in name]
    assert len(segments) > 3
    assert {name.rpartition(".")[2] for name in segments} == {"segz" if compress else "seg"}
    assert not [name for name in names if name.endswith(".tmp")]
    assert same_events(read(tmp_path), flat(groups))
    sizes = sum((runs(tmp_path)[0] / name).stat().st_size for name in segments)
    assert (sizes < log_bytes) == compress


def test_a_group_larger_than_a_segment_gets_its_own(tmp_path):
    """No group is cut: a segment is made for it, and the next one is of the usual size."""
    random = np.random.default_rng(5)
    large = [Evicted("flush", (random.integers(1, 5000, 3000).astype(np.int32),)) for _ in "abc"]
    groups = [[Marked("a", False)], large, [Marked("b", False)]]
    with start(tmp_path, ONE_GROUP, segment_bytes=4096, compress=False) as writer:
        append_all(writer, groups)
    assert same_events(read(tmp_path), flat(groups))


def test_snapshots_are_asked_for_by_bytes(tmp_path):
    """The first is due after the given bytes of events, the next when all are at most half."""
    writer = start(tmp_path, ONE_GROUP, snapshot_every_bytes=1000)
    assert not writer.wants_snapshot
    groups = iter(plain_groups(4000))
    first = second = None
    while not writer.wants_snapshot:
        writer.append(writer.next_seq, 0, 0, next(groups))
    first = writer.log_bytes
    snapshot = FakeSnapshot(writer.next_seq, num=1000)
    writer.snapshot(snapshot)
    assert not writer.wants_snapshot
    settled(writer)
    assert snapshot.released == 1
    while not writer.wants_snapshot:
        writer.append(writer.next_seq, 0, 0, next(groups))
    second = writer.log_bytes
    writer.close()
    assert 1000 <= first < 1000 + 150
    # 1,000 pages in order (a bit each), keys of 8 bytes, 2,000 numbers of 11 bits: 10,875 bytes and
    # a table of names.
    assert 21_750 <= second < 23_250


def test_snapshots_come_back(tmp_path):
    """A state is read as it was frozen, and reading may begin at it."""
    groups = plain_groups(60)
    with start(tmp_path, ONE_GROUP) as writer:
        append_all(writer, groups[:25])
        writer.snapshot(FakeSnapshot(25))
        settled(writer)
        append_all(writer, groups[25:40])
        writer.snapshot(FakeSnapshot(40, num=0))
        append_all(writer, groups[40:])
    run = open_run(tmp_path)
    assert run.snapshots == [25, 40]
    assert same_state(run.snapshot(25), state_of(25))
    assert same_state(run.snapshot(40), state_of(40, num=0))
    assert [run.snapshot_before(seq) for seq in (24, 25, 39, 60)] == [None, 25, 25, 40]
    assert same_events([r.event for r in run.events(25)], flat(groups[25:]))
    assert same_events([r.event for r in run.events()], flat(groups))
    with pytest.raises(LogError, match="no snapshot of seq 26; there are 25, 40"):
        run.snapshot(26)


def test_one_snapshot_at_a_time(tmp_path):
    """While one is being written another is not taken, and its buffers are given back."""
    with start(tmp_path, ONE_GROUP) as writer:
        gate = threading.Event()
        writer._run.thread._jobs.put(gate.wait)
        slow, late = FakeSnapshot(0), FakeSnapshot(0)
        writer.snapshot(slow)
        writer.snapshot(late)
        assert (slow.released, late.released) == (0, 1)
        gate.set()
    assert slow.released == 1
    assert open_run(tmp_path).snapshots == [0]


def test_a_snapshot_of_another_seq_is_refused(tmp_path):
    """A state must be the one after what was appended; it is released all the same."""
    with start(tmp_path) as writer:
        snapshot = FakeSnapshot(3)
        with pytest.raises(LogError, match="a snapshot of seq 3, next is 0"):
            writer.snapshot(snapshot)
        assert snapshot.released == 1


def test_a_snapshot_that_fails_is_told_and_asked_for_again(tmp_path):
    """The log goes on without it; the problem stands in `problems`."""
    with start(tmp_path, ONE_GROUP, snapshot_every_bytes=400) as writer:
        append_all(writer, plain_groups(20))
        snapshot = FakeSnapshot(20)
        snapshot.freeze = lambda: 1 // 0
        writer.snapshot(snapshot)
        settled(writer)
        assert "ZeroDivisionError" in writer.problems[0]
        assert snapshot.released == 1
        append_all(writer, plain_groups(20))
        assert writer.wants_snapshot
    run = open_run(tmp_path)
    assert run.snapshots == []
    assert run.next_seq == 40


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sync": "always"}, "sync must be"),
        ({"sync": 0}, "sync must be"),
        ({"sync": True}, "sync must be"),
        ({"on_full": "ignore"}, "on_full must be"),
        ({"segment_bytes": 100}, "segment_bytes must be in"),
        ({"snapshot_every_bytes": 0}, "snapshot_every_bytes must be above 0"),
    ],
)
def test_options_that_cannot_be_are_refused(tmp_path, options, message):
    """A bad option is named before anything is written."""
    with pytest.raises(ConfigError, match=message):
        LogWriter(tmp_path, **options)


def test_retentions_that_cannot_be_are_refused():
    """Nothing kept, or a ring and a bound at once, make no sense."""
    with pytest.raises(ConfigError, match="keep_bytes must be above 0"):
        Retention(keep_bytes=0)
    with pytest.raises(ConfigError, match="stands alone"):
        Retention(ring_bytes=1 << 20, keep_seconds=5)
    with pytest.raises(ConfigError, match="at least 65536"):
        Retention(ring_bytes=1000)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_an_unwritable_folder_is_named(tmp_path):
    """A folder that cannot be written is an error that says so, and nothing is left behind."""
    tmp_path.chmod(0o500)
    with pytest.raises(LogError, match="Permission denied"):
        start(tmp_path / "log")


def test_a_root_that_is_a_file_is_named(tmp_path):
    """A path that no folder can be made at is an error that names it."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(LogError, match="no run can be made here"):
        start(tmp_path / "file" / "log")


def test_the_header_keeps_its_time(tmp_path):
    """The clock that the writer was given is read once, where the header has no time."""
    writer = LogWriter(tmp_path, clock_ns=lambda: 123)
    writer.start(attrs.evolve(HEADER, created_ns=None))
    writer.close()
    assert open_run(tmp_path).header == attrs.evolve(HEADER, created_ns=123)


def test_rows_of_a_batch_are_written_once(tmp_path):
    """A batch costs its rows in the first step, and a few bytes in those after it."""
    rows = ints(*range(399, 0, -2))
    with start(tmp_path, CONFIG) as writer:
        sizes = []
        for length in range(1, 5):
            before = writer.log_bytes
            lengths = np.full(200, length, np.int32)
            writer.append(writer.next_seq, length, length, [Committed(rows, lengths)])
            sizes.append(writer.log_bytes - before)
    # A head of 14 bytes, the slot and the tag "all ones"; before the first, the batch: a head,
    # slot, number and a run.
    assert sizes[1:] == [16, 16, 16]
    assert sizes[0] == 16 + 14 + 1 + 2 + 1 + 2 + 1


def test_a_run_may_begin_later(tmp_path):
    """A run begun at seq 7 has its history from there on, as if what was before had been let go."""
    log = LogWriter(tmp_path)
    path = log.start_at(HEADER, 7)
    assert (log.next_seq, log.num_events) == (7, 0)
    log.snapshot(FakeSnapshot(7))
    log.append(7, 0, 0, [Marked("seven", idle=False)])
    assert log.num_events == 1
    log.close(digest=5)
    run = open_run(path)
    assert (run.begins_at, run.next_seq, run.snapshots) == (7, 8, [7])
    assert (run.closed.num_events, run.closed.digest) == (1, 5)
    assert [item.seq for item in run.events()] == [7]
    with pytest.raises(LogError, match="seq 6 is gone, history begins at 7"):
        next(run.events(6))


def test_events_can_be_counted_as_missing(tmp_path):
    """What is skipped is a gap like that of a full disk, which ends with a snapshot."""
    log = LogWriter(tmp_path)
    with pytest.raises(LogError, match="not started"):
        log.skip(1)
    log.start(HEADER)
    log.append(0, 0, 0, [Marked("zero", idle=False)])
    log.skip(2)
    log.skip(1)
    assert (log.next_seq, log.num_gaps, log.gap_events) == (4, 1, 3)
    log.snapshot(FakeSnapshot(4))
    log.append(4, 0, 0, [Marked("four", idle=False)])
    log.close()
    run = open_run(tmp_path)
    assert [(gap.first_seq, gap.next_seq) for gap in run.gaps] == [(1, 4)]
    assert [item.seq for item in run.events()] == [0, 4]
