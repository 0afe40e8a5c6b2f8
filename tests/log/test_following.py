"""Following a run while it is written: each event once, whatever becomes of its files meanwhile."""

import itertools

import pytest
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
from kvlife.log import Retention
from kvlife.log.files import list_run
from kvlife.log.following import FollowedRun, Overtaken

GROUPS = plain_groups(3_000)
EVENTS = [event for group in GROUPS for event in group]


def follow(root):
    """Follow the one run in a folder."""
    (path,) = root.glob("run-*")
    return FollowedRun(path)


def read(run):
    return [item for group in run.groups() for item in group]


def check_events(got, first_seq=0):
    """Events of `GROUPS` in order and each once, from this seq on."""
    assert [item.seq for item in got] == list(range(first_seq, first_seq + len(got)))
    wanted = EVENTS[first_seq : first_seq + len(got)]
    assert same_events([item.event for item in got], wanted)


def test_each_look_gives_what_was_written_since(tmp_path):
    """Whatever the pieces in which a log grows, each event is read once and at once."""
    writer = start(tmp_path, ONE_GROUP)
    run = follow(tmp_path)
    assert run.start() is None
    got = []
    for low, high in itertools.pairwise([0, 0, 1, 7, 500, 501, 3_000]):
        append_all(writer, GROUPS[low:high], low)
        got += read(run)
        assert run.seq == len(got) == high
    check_events(got)
    assert [item.step for item in got] == list(range(3_000))
    assert run.is_live
    assert run.closed is None
    writer.close(7)
    assert read(run) == []
    assert run.closed.digest == 7
    assert not run.is_live


@pytest.mark.parametrize("compress", [True, False])
def test_segments_change_between_two_looks(tmp_path, compress):
    """A segment may be sealed and compressed while only half of it was read."""
    writer = start(tmp_path, ONE_GROUP, segment_bytes=4096, compress=compress)
    run = follow(tmp_path)
    run.start()
    got = []
    for low in range(0, 3_000, 30):
        append_all(writer, GROUPS[low : low + 30], low)
        if low % 90 == 0:
            settled(writer)
        got += read(run)
    check_events(got)
    assert len(got) == 3_000
    files, _ = list_run(run.path)
    assert len(files) > 10
    assert any(file.packed for file in files) == compress
    writer.close(None)


def test_a_look_may_end_at_any_group(tmp_path):
    """Who stops in the middle of what is there goes on behind the last group it was given."""
    append_all(start(tmp_path, ONE_GROUP, segment_bytes=4096), GROUPS[:400])
    run = follow(tmp_path)
    run.start()
    got = []
    while some := [item for group in itertools.islice(run.groups(), 7) for item in group]:
        got += some
    assert len(got) == 400
    check_events(got)


def test_it_begins_at_the_newest_snapshot(tmp_path):
    """What lies before the snapshot is not read."""
    writer = start(tmp_path, ONE_GROUP, snapshot_every_bytes=512)
    append_all(writer, GROUPS[:600])
    assert writer.wants_snapshot
    writer.snapshot(FakeSnapshot(600))
    settled(writer)
    append_all(writer, GROUPS[600:1000], 600)
    run = follow(tmp_path)
    assert run.start().digest == 600
    got = read(run)
    check_events(got, 600)
    assert run.seq == 1000


def test_a_record_that_is_not_whole_is_waited_for(tmp_path):
    """Half a record ends a look, and is read once the rest of it is there."""
    writer = start(tmp_path, ONE_GROUP)
    append_all(writer, GROUPS[:10])
    live = follow(tmp_path)
    whole = list_run(live.path)[0][0].path.read_bytes()
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in live.path.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    segment = copy / list_run(live.path)[0][0].path.name
    end = len(whole.rstrip(b"\0"))
    torn = bytearray(whole)
    torn[end - 3 :] = bytes(len(whole) - end + 3)
    segment.write_bytes(torn)
    run = FollowedRun(copy)
    run.start()
    check_events(read(run))
    assert run.seq == 9
    assert "checksum" in run.torn
    segment.write_bytes(whole)
    check_events(read(run), 9)
    assert run.seq == 10
    assert run.torn == ""


def test_who_is_too_slow_for_the_retention_is_told(tmp_path):
    """Where the next segment was removed, the reader begins again at a newer snapshot."""
    retention = Retention(keep_bytes=20_000)
    writer = start(tmp_path, ONE_GROUP, retention=retention, segment_bytes=4096)
    run = follow(tmp_path)
    run.start()
    append_all(writer, GROUPS[:50])
    read(run)
    for seq in range(50, 12_000):
        writer.append(seq, seq, seq, GROUPS[seq % 3_000])
        if writer.wants_snapshot:
            writer.snapshot(FakeSnapshot(writer.next_seq, num=20))
            settled(writer)
    with pytest.raises(Overtaken, match="gone"):
        read(run)
    assert run.has_newer_snapshot()
    state = run.start()
    assert state.digest == run.seq
    last = read(run)[-1]
    assert last.seq == 11_999


def test_a_folder_without_a_header_is_no_run(tmp_path):
    """What is not a run is refused, and named."""
    with pytest.raises(LogError, match=r"header\.json"):
        FollowedRun(tmp_path)
