"""What a log says of its own end: the mark of a violation, if that is its last event."""

import pytest
from log_samples import ONE_GROUP, FakeSnapshot, plain_groups, settled, start

from kvlife.events import Marked, Violated
from kvlife.log import open_run

MARK = Violated(1, "release-once", False)


def write(path, groups, **options):
    """A closed run of these groups."""
    with start(path, ONE_GROUP, **options) as writer:
        append(writer, groups)
    return path


def append(writer, groups):
    for group in groups:
        writer.append(writer.next_seq, 0, 0, group)


def told(path):
    """What the log says ended it, as a tuple."""
    mark = open_run(path).violated()
    return None if mark is None else (mark.seq, mark.invariant, mark.applied)


def test_a_mark_at_the_end_is_found_without_reading_events(tmp_path, monkeypatch):
    """The segment was gone through on opening; no event is decoded for the answer but the mark."""
    write(tmp_path, [*plain_groups(100), [Violated(99, "release-once", True)]])
    run = open_run(tmp_path)
    monkeypatch.setattr(run, "load_segment", None)
    mark = run.violated()
    assert (mark.seq, mark.invariant, mark.applied) == (99, "release-once", True)


@pytest.mark.parametrize(
    "groups",
    [
        [],
        [[Marked("a", False)]],
        [[Marked("a", False)], [MARK], [Marked("b", False)]],
        [[Marked("a", False), MARK]],
    ],
    ids=["empty", "no mark", "events behind it", "in a group"],
)
def test_what_ends_nothing_is_no_end(tmp_path, groups):
    """An end is a mark that stands alone, and last: so the replay takes it, too."""
    assert told(write(tmp_path, groups)) is None


def test_a_gap_behind_the_mark_hides_what_came_last(tmp_path):
    """Where events are missing behind the mark, it is not known to be the last."""
    with start(tmp_path, ONE_GROUP) as writer:
        append(writer, [[Marked("a", False)], [MARK]])
        writer.skip(3)
    assert told(tmp_path) is None


def test_a_mark_is_found_before_a_segment_without_events(tmp_path):
    """A snapshot that began a new segment holds no event; the mark in the one before counts."""
    with start(tmp_path, ONE_GROUP, segment_bytes=4096) as writer:
        append(writer, [[Marked("a" * 3700, False)], [MARK]])
        seq = writer.next_seq
        for _ in range(20):
            writer.snapshot(FakeSnapshot(seq))
            settled(writer)
    run = open_run(tmp_path)
    assert run._tail.last_kind is None
    assert told(tmp_path) == (1, "release-once", False)


def test_a_torn_mark_is_none(tmp_path):
    """A mark that was not written whole is not there; the event before it is the last."""
    write(tmp_path, [[Marked("a", False)], [MARK]], compress=False)
    (segment,) = tmp_path.rglob("*.seg")
    content = segment.read_bytes()
    segment.write_bytes(content[: content.index(b"release-once") + 4])
    assert told(tmp_path) is None
