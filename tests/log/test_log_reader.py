"""Reading: seeking, runs that are being written, headers, damage at the end."""

import json

import pytest
from log_samples import (
    HEADER,
    ONE_GROUP,
    FakeSnapshot,
    append_all,
    plain_groups,
    same_events,
    settled,
    start,
)

from kvlife.errors import LogCorrupt, LogError, LogTruncated, LogVersionError
from kvlife.events import Marked
from kvlife.log import CloseMark, open_run, runs
from kvlife.log.header import decode_header, encode_header
from kvlife.log.wire import LAST_EVENT_CODE, SEGMENT_HEAD_BYTES

NUM = 1100
GROUPS = plain_groups(NUM)
EVENTS = [group[0] for group in GROUPS]


def write(path, *, snapshots=(), close=True, num=NUM, **options):
    """A run of one-event groups with snapshots before the given seqs; returns its folder."""
    writer = start(path, ONE_GROUP, segment_bytes=4096, **options)
    for seq in range(num):
        if seq in snapshots:
            writer.snapshot(FakeSnapshot(seq))
            settled(writer)
        writer.append(seq, seq, seq, GROUPS[seq])
    if close:
        writer.close(99)
    else:
        settled(writer)
        # As the system does it when the process dies.
        writer._run.leave_to_parent()
    return runs(path)[-1]


def last_segment(run):
    return max(run.glob("*.seg*"))


def test_a_closed_run_says_so(tmp_path):
    """The end mark has the number of events and the digest; an open end has none."""
    closed = open_run(write(tmp_path / "a"))
    assert closed.closed == CloseMark(num_events=NUM, next_seq=NUM, digest=99)
    assert not closed.live
    left = open_run(write(tmp_path / "b", close=False))
    assert left.closed is None
    assert (left.next_seq, left.warnings, left.live) == (NUM, [], False)


@pytest.mark.parametrize("compress", [True, False])
def test_any_range_can_be_read(tmp_path, compress):
    """Reading begins and ends at any seq, in whatever segment and behind whatever snapshot."""
    run = open_run(write(tmp_path, snapshots=(160, 520, 521, 1060), compress=compress))
    for first in range(0, NUM + 1, 29):
        for stop in (None, first, first + 1, first + 360, 5000):
            got = list(run.events(first, stop))
            last = NUM if stop is None else min(stop, NUM)
            assert [r.seq for r in got] == list(range(first, last))
            assert same_events([r.event for r in got], EVENTS[first:last])


def test_a_range_may_cut_groups(tmp_path):
    """Events are cut exactly; groups are those that begin in the range, whole."""
    with start(tmp_path) as writer:
        writer.append(0, 0, 0, [Marked(text, False) for text in "abc"])
        writer.append(3, 0, 0, [Marked(text, False) for text in "def"])
        writer.append(6, 0, 0, [Marked("g", False)])
    run = open_run(tmp_path)
    assert [r.event.text for r in run.events(1, 5)] == ["b", "c", "d", "e"]
    assert [[r.event.text for r in group] for group in run.groups(1, 5)] == [["d", "e", "f"]]


def test_opening_reads_heads_and_the_end_only(tmp_path, monkeypatch):
    """Neither opening nor seeking goes through the segments before."""
    folder = write(tmp_path, snapshots=(160, 1060))
    opened = []
    whole = open_run.__globals__["read_segment"]
    monkeypatch.setattr(
        "kvlife.log.reader.read_segment",
        lambda file, crc: opened.append(file.idx) or whole(file, crc),
    )
    run = open_run(folder)
    last = int(last_segment(folder).name[:8])
    assert last > 2
    assert opened == [last]
    assert len(list(run.events(1095))) == 5
    assert opened == [last, last]


def test_a_run_that_is_being_written_can_be_read(tmp_path):
    """A reader beside the writer sees what was there when it opened, and its own view lasts."""
    writer = start(tmp_path, ONE_GROUP, segment_bytes=4096)
    append_all(writer, GROUPS[:600])
    early = open_run(tmp_path)
    append_all(writer, GROUPS[600:], step=600)
    settled(writer)
    late = open_run(tmp_path)
    assert (early.live, late.live) == (True, True)
    assert same_events([r.event for r in early.events()], EVENTS[:600])
    assert same_events([r.event for r in late.events()], EVENTS)
    writer.close()
    assert same_events([r.event for r in late.events()], EVENTS)


def test_reading_writes_nothing(tmp_path):
    """Names, sizes and times of all files are the same after everything was read."""
    folder = write(tmp_path, snapshots=(160,), close=False)

    def state():
        return {
            path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.iterdir()
        }

    before = state()
    run = open_run(folder, salvage=True)
    list(run.events())
    run.snapshot(160)
    assert state() == before


def test_what_is_no_log_is_named(tmp_path):
    """A missing folder and one without runs are told apart."""
    with pytest.raises(LogError, match="no such folder"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(LogError, match="no run in it"):
        open_run(tmp_path)


def test_an_empty_run_opens(tmp_path):
    """A run without an event has a beginning and an end, both 0."""
    start(tmp_path).close()
    run = open_run(tmp_path)
    assert (run.begins_at, run.next_seq, list(run.events())) == (0, 0, [])


def test_a_tear_is_dropped_with_a_warning(tmp_path):
    """An unreadable end is left out, and the reader is told where."""
    folder = write(tmp_path, close=False)
    whole = open_run(folder)
    path = last_segment(folder)
    content = bytearray(path.read_bytes())
    used = len(content.rstrip(b"\0"))
    content[used - 3] ^= 0x40
    path.write_bytes(content)
    run = open_run(folder)
    assert run.next_seq == whole.next_seq - 1
    assert "an unreadable end was dropped at offset" in run.warnings[0]
    assert same_events([r.event for r in run.events()], EVENTS[: NUM - 1])


@pytest.mark.parametrize("cut", [1, 30, 500])
def test_a_cut_end_is_dropped_with_a_warning(tmp_path, cut):
    """A file that lost its end is read up to there; the warning says that it was cut."""
    folder = write(tmp_path, close=False)
    path = last_segment(folder)
    content = path.read_bytes().rstrip(b"\0")
    path.write_bytes(content[:-cut])
    run = open_run(folder)
    assert run.warnings
    got = [r.event for r in run.events()]
    assert 1060 < len(got) < NUM
    assert same_events(got, EVENTS[: len(got)])


def test_a_last_segment_without_a_head_is_a_tear(tmp_path):
    """After a power loss even the head may be missing; what stands before it is read."""
    folder = write(tmp_path, close=False)
    path = last_segment(folder)
    first_seq = int(path.name[9:29])
    path.write_bytes(bytes(4096))
    run = open_run(folder)
    assert run.next_seq == first_seq
    assert "was dropped" in run.warnings[0]
    assert same_events([r.event for r in run.events()], EVENTS[:first_seq])


def test_damage_before_valid_records_is_corruption(tmp_path):
    """It is reported with file and offset, on opening where it lies in the last segment."""
    folder = write(tmp_path, close=False)
    path = last_segment(folder)
    content = bytearray(path.read_bytes())
    content[SEGMENT_HEAD_BYTES + 16] ^= 1
    path.write_bytes(content)
    with pytest.raises(LogCorrupt, match=rf"{path.name}: offset {SEGMENT_HEAD_BYTES}.*--salvage"):
        open_run(folder)


def test_damage_in_the_middle_is_corruption(tmp_path):
    """It is reported when reading comes to it; what stands before it is read."""
    folder = write(tmp_path, compress=False)
    path = sorted(folder.glob("*.seg"))[1]
    content = bytearray(path.read_bytes())
    content[700] ^= 1
    path.write_bytes(content)
    run = open_run(folder)
    got = []
    with pytest.raises(LogCorrupt, match=f"{path.name}: offset"):
        got.extend(run.events())
    got = [r.event for r in run.events(0, int(path.name[9:29]))]
    assert same_events(got, EVENTS[: len(got)])


@pytest.mark.parametrize("left", ["*.names", "*.snap"])
def test_a_run_that_lost_all_segments_is_not_taken_for_an_empty_one(tmp_path, left):
    """Names and snapshots are written beside a segment only; a header alone is an empty run."""
    run = write(tmp_path, snapshots=(500,))
    for path in run.iterdir():
        if path.suffix != ".json" and not path.match(left):
            path.unlink()
    with pytest.raises(LogTruncated, match="all segments are missing"):
        open_run(run)
    salvaged = open_run(run, salvage=True)
    assert (salvaged.next_seq, list(salvaged.events())) == (0, [])
    assert "all segments are missing" in salvaged.warnings[0]
    for path in run.glob(left):
        path.unlink()
    empty = open_run(run)
    assert empty.warnings == ["no segment: the run ended before its first event"]


def test_a_missing_segment_is_told(tmp_path):
    """Between others, and at the end: a sealed segment that nothing follows has lost it."""
    folder = write(tmp_path / "a")
    sorted(folder.glob("*.segz"))[1].unlink()
    with pytest.raises(LogTruncated, match="segment 1 is missing"):
        open_run(folder)
    folder = write(tmp_path / "b")
    last_segment(folder).unlink()
    with pytest.raises(LogTruncated, match="followed it, and is missing"):
        open_run(folder)


def test_segments_that_change_places_are_told(tmp_path):
    """A name must say what the head says, and a head what the segment before said."""
    folder = write(tmp_path / "a")
    paths = sorted(folder.glob("*.segz"))
    content = paths[1].read_bytes()
    paths[1].write_bytes(paths[2].read_bytes())
    paths[2].write_bytes(content)
    with pytest.raises(LogCorrupt, match="renamed or swapped"):
        open_run(folder)


def test_a_segment_of_another_run_is_told(tmp_path):
    """Two runs that differ in one event cannot lend each other segments."""
    first = write(tmp_path / "a", compress=False)
    changed = [Marked("other", False)]
    writer = start(tmp_path / "b", ONE_GROUP, segment_bytes=4096, compress=False)
    for seq in range(NUM):
        writer.append(seq, seq, seq, changed if seq == 600 else GROUPS[seq])
    writer.close()
    second = runs(tmp_path / "b")[0]
    theirs = {path.name[:8]: path for path in second.glob("*.seg")}
    ours = max(first.glob("*.seg"))
    other = theirs[ours.name[:8]]
    (first / other.name).write_bytes(other.read_bytes())
    if other.name != ours.name:
        ours.unlink()
    with pytest.raises(LogCorrupt, match="follows another segment"):
        list(open_run(first).events())


def test_salvage_goes_on_from_the_next_snapshot(tmp_path):
    """What is damaged is skipped up to a state, and listed; all before and behind is read."""
    folder = write(tmp_path, snapshots=(160, 520, 1060), compress=False)
    for path in sorted(folder.glob("*.seg"))[1:2]:
        content = bytearray(path.read_bytes())
        content[700] ^= 1
        path.write_bytes(content)
    run = open_run(folder, salvage=True)
    got = list(run.events())
    (skipped,) = run.skipped
    assert skipped.next_seq in (520, 1060)
    seqs = [*range(skipped.first_seq), *range(skipped.next_seq, NUM)]
    assert [r.seq for r in got] == seqs
    assert same_events([r.event for r in got], [EVENTS[seq] for seq in seqs])


def test_salvage_passes_a_damaged_snapshot_by(tmp_path):
    """A state that cannot be read is none to go on from."""
    folder = write(tmp_path, snapshots=(160, 520, 1060), compress=False)
    path = min(folder.glob("*.seg"))
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    state = folder / f"{160:020d}.snap"
    content = bytearray(state.read_bytes())
    content[-9] ^= 1
    state.write_bytes(content)
    run = open_run(folder, salvage=True)
    assert [r.seq for r in run.events()][-580:] == list(range(520, NUM))
    assert run.skipped[0].next_seq == 520
    with pytest.raises(LogCorrupt):
        run.snapshot(160)


def test_salvage_without_a_snapshot_ends_there(tmp_path):
    """With no state behind the damage, the rest is lost, and said to be."""
    folder = write(tmp_path, close=False)
    path = max(folder.glob("*.seg"))
    first_seq = int(path.name[9:29])
    content = bytearray(path.read_bytes())
    content[SEGMENT_HEAD_BYTES + 16] ^= 1
    path.write_bytes(content)
    run = open_run(folder, salvage=True)
    assert [r.seq for r in run.events()] == list(range(first_seq))
    assert run.skipped[0].next_seq is None
    assert any("valid records follow it" in warning for warning in run.warnings)


def test_a_newer_format_is_refused(tmp_path):
    """The error says which version it is, and what to do."""
    folder = write(tmp_path)
    path = folder / "header.json"
    path.write_bytes(path.read_bytes().replace(b'"format_version": 1', b'"format_version": 7'))
    with pytest.raises(LogVersionError, match="in format 7, this kvlife reads up to 1: read it"):
        open_run(folder)


def test_a_changed_header_is_told(tmp_path):
    """A header that was edited is not the one that the segments were written under."""
    folder = write(tmp_path)
    path = folder / "header.json"
    path.write_bytes(path.read_bytes().replace(b"5000", b"4000"))
    with pytest.raises(LogCorrupt, match="under another header"):
        open_run(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "red"}, "unknown colour; known are config, policies"),
        ({"config": {"page_size": 16, "pages": 3}}, "config: unknown pages; known are page_size"),
        ({"config": {"page_size": 0}}, "missing required field"),
        ({"rank": "first"}, "Expected `int`"),
        ({"format_version": "1"}, "format_version must be a whole number"),
        ({"format_version": None}, "format_version must be a whole number"),
    ],
)
def test_a_header_that_cannot_be_is_told(change, message):
    """Unknown keys list the known ones; wrong types and sizes are named."""
    fields = json.loads(encode_header(HEADER))
    with pytest.raises(LogError, match=message):
        decode_header(json.dumps({**fields, **change}).encode(), "header.json")


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"{" * 100000, b'{"a":'])
def test_a_header_that_is_no_json_is_told(content):
    """Bytes that are no JSON object are an error of the log, whatever they are."""
    with pytest.raises(LogCorrupt):
        decode_header(content, "header.json")


def test_a_header_can_be_read_by_a_person():
    """One field a line, and back the same."""
    content = encode_header(HEADER)
    assert b'\n  "format_version": 1' in content
    assert decode_header(content, "header.json") == HEADER


def append_foreign(writer, kind, body):
    """Append a record of a kind that this version does not have."""
    seq = writer.next_seq
    writer._run.tape.put_surely(kind, body, seq, int(kind <= LAST_EVENT_CODE), 0, 0)


def test_unknown_kinds_are_shown_and_counted(tmp_path):
    """Events of a newer writer keep their places in the log, and each is counted once."""
    with start(tmp_path, ONE_GROUP) as writer:
        append_all(writer, GROUPS[:3])
        append_foreign(writer, 0x50, b"abc")
        append_all(writer, GROUPS[4:6], step=4)
        append_foreign(writer, 0x51, b"")
    run = open_run(tmp_path)
    for _ in range(2):
        got = list(run.events())
        assert [r.seq for r in got] == list(range(7))
        assert same_events([r.event for r in got[4:6]], EVENTS[4:6])
        assert (got[3].event.code, got[3].event.size_bytes) == (0x50, 3)
        assert run.unknown == {0x50: 1, 0x51: 1}
    assert "1 events of the unknown kind 80" in run.warnings[0]


def test_unknown_records_of_the_log_itself_stop_the_reader(tmp_path):
    """What they would mean to what follows cannot be known."""
    with start(tmp_path, ONE_GROUP) as writer:
        append_all(writer, GROUPS[:3])
        append_foreign(writer, 0x6F, b"")
        append_all(writer, GROUPS[3:6], step=3)
    with pytest.raises(LogVersionError, match="record of kind 0x6f"):
        list(open_run(tmp_path).events())
