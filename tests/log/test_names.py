"""The files of names: what each stretch of a sealed segment names, and what they are worth."""

import struct

import numpy as np
import pytest

import kvlife.log.names as names_file
from kvlife import LogWriter, PoolConfig
from kvlife.config import compile_layout
from kvlife.errors import EventError
from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Released,
    Resized,
    RolledBack,
    SessionSaved,
)
from kvlife.log import Retention, RunHeader, open_run
from kvlife.log.names import StretchNames, read_names, write_names
from kvlife.log.notes import GatheredNames, Notes

CONFIG = PoolConfig(page_size=4, num_pages=32, max_requests=8, max_context_len=64)


def ints(*values):
    array = np.array(values, np.int32)
    array.setflags(write=False)
    return array


def admitted(rid, row, *pages):
    return Admitted(rid, row, 0, 40, 4 * len(pages), 0, (), (ints(*pages),))


class State:
    """A state that a log writes as a snapshot: one array and no more."""

    arrays = {"pages": np.arange(4, dtype=np.int32)}  # noqa: RUF012  # nobody changes it
    meta, digest = b"", 1

    def __init__(self, seq):
        self.seq = seq

    def freeze(self):
        return self

    def release(self):
        pass


def write(path, groups, **options):
    """Write groups of events, or the word "snapshot"; returns the run's folder."""
    writer = LogWriter(path, snapshot_every_bytes=1 << 20, **options)
    folder = writer.start(RunHeader(config=CONFIG))
    seq = 0
    for group in groups:
        if group == "snapshot":
            writer.snapshot(State(seq))
            writer.wait()
            continue
        writer.append(seq, 0, 0, group)
        seq += len(group)
    writer.close()
    return folder


def pages_of(stretch):
    names = stretch.names
    named = [page for page in range(32) if names.names_page(0, page)]
    return named, [page for page in range(32) if names.takes_page(0, page)]


def test_each_stretch_has_the_names_of_its_events(tmp_path):
    """Pages named and taken, rows, requests and sessions, before and behind a snapshot."""
    rows = ints(1, 2, 3, 5, 6)
    copies = np.array([[0, 7, 4, 9]], np.int32)
    write(
        tmp_path,
        [
            [admitted("r1", 4, 10, 11)],
            [Allocated(rows, ints(8, 8, 8, 8, 8), (ints(20, 21),))],
            [Committed(rows, ints(8, 8, 8, 8, 8))],
            "snapshot",
            [SessionSaved("s1", "r2", 2, 4, (ints(21),))],
            [RolledBack(ints(7), ints(4), ints(4), (ints(),), copies)],
        ],
    )
    first, second = open_run(tmp_path).stretches()
    assert (first.first_seq, second.first_seq) == (0, 3)
    assert pages_of(first) == ([10, 11, 20, 21], [20, 21])
    assert [row for row in range(9) if first.names.names_row(row)] == [1, 2, 3, 4, 5, 6]
    assert first.names.names_request("r1")
    assert not first.names.names_request("r2")
    assert pages_of(second) == ([4, 9, 21], [9])
    assert [row for row in range(9) if second.names.names_row(row)] == [2, 7]
    assert second.names.names_request("r2")
    assert second.names.names_session("s1")
    assert not first.names.names_session("s1")


def test_a_batch_is_named_in_each_segment_that_it_steps_in(tmp_path):
    """Its rows are written once a segment, and so they are named in each."""
    rows = ints(1, 2, 3, 5, 6)
    steps = [[Committed(rows, ints(*range(step, step + 5)))] for step in range(600)]
    write(tmp_path, steps, segment_bytes=4096)
    stretches = list(open_run(tmp_path).stretches())
    assert len(stretches) > 2
    assert all(stretch.names.names_row(6) for stretch in stretches)
    assert not any(stretch.names.names_row(4) for stretch in stretches)


def test_an_array_that_its_owner_changes_later_is_named_as_it_was_written(tmp_path):
    """The notes are bytes of the time, as the log's own thread looks at them later."""
    pages = np.array([3, 4], np.int32)
    writer = LogWriter(tmp_path)
    writer.start(RunHeader(config=CONFIG))
    writer.append(0, 0, 0, [Allocated(ints(1), ints(8), (pages,))])
    pages[:] = 30
    writer.close()
    (stretch,) = open_run(tmp_path).stretches()
    assert pages_of(stretch) == ([3, 4], [3, 4])


def test_a_large_page_list_is_named_too(tmp_path):
    """Lists that the quick way does not write are noted all the same."""
    config = PoolConfig(page_size=4, num_pages=9000, max_requests=8, max_context_len=40_000)
    writer = LogWriter(tmp_path)
    writer.start(RunHeader(config=config))
    pages = ints(*range(8999, 0, -2))
    writer.append(0, 0, 0, [Released("r1", 1, "finished", (pages,), ints())])
    writer.close()
    (stretch,) = open_run(tmp_path).stretches()
    assert stretch.names.names_page(0, 8999)
    assert not stretch.names.names_page(0, 8998)
    assert not stretch.names.takes_page(0, 8999)


def spoilt(content, how):
    """A file of names that is not what it was."""
    if how == "cut":
        return content[:-1]
    if how == "empty":
        return b""
    at = {"magic": 0, "version": 8, "crc of the head": 36, "content": len(content) - 3}[how]
    return content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :]


@pytest.mark.parametrize("how", ["cut", "empty", "magic", "version", "crc of the head", "content"])
def test_damaged_names_are_no_names(tmp_path, how):
    """Whatever is wrong with the file, the log is read as if there were none."""
    folder = write(tmp_path, [[admitted("r1", 1)]])
    (path,) = folder.glob("*.names")
    path.write_bytes(spoilt(path.read_bytes(), how))
    (stretch,) = open_run(tmp_path).stretches()
    assert (stretch.first_seq, stretch.names) == (0, None)
    assert open_run(tmp_path).next_seq == 1


def test_names_of_another_run_are_no_names(tmp_path):
    """A file that was copied from another run's segment does not fit the segment's head."""
    one = write(tmp_path / "one", [[admitted("r1", 1)]])
    other = write(tmp_path / "other", [[admitted("r2", 2)]])
    (path,), (foreign,) = one.glob("*.names"), other.glob("*.names")
    path.write_bytes(foreign.read_bytes())
    (stretch,) = open_run(one).stretches()
    assert stretch.names is None


def test_any_bytes_are_read_without_an_error(tmp_path, seed, monkeypatch):
    """Whatever stands in a file whose checksums fit, reading ends in names or in none."""
    rng = np.random.default_rng(seed)
    folder = write(tmp_path, [[admitted("r1", 1)], "snapshot", [admitted("r2", 2)]])
    run = open_run(folder)
    head = run._heads[0]
    sound = StretchNames(
        first_seq=0, named=(b"\x06",), taken=(b"\x02",), rows=b"\x02",
        requests=b"\x07\0\0\0", sessions=b"",
    )  # fmt: skip
    path = tmp_path / "names"
    write_names(path, head.crc, [sound])
    assert read_names(path, head, 1) == [sound]
    for _ in range(300):
        raw = bytearray(rng.bytes(int(rng.integers(60))))
        if len(raw) > 12:
            raw[:12] = struct.pack("<QBBBB", 0, 1, 1, 0, 0)
        monkeypatch.setattr(names_file, "_pieces", lambda _stretch, raw=raw: [bytes(raw)])
        write_names(path, head.crc, [sound])
        read_names(path, head, 1)


def test_names_that_could_not_be_gathered_are_not_written():
    """Notes that fail to be taken up make the sets unfit, and that is remembered."""
    names = GatheredNames(compile_layout(CONFIG), 0)
    notes = Notes(1)
    notes.requests.append(None)
    with pytest.raises(AttributeError):
        names.take_up(notes, None)
    assert names.lost
    names.take_up(Notes(1), None)
    assert names.lost


def test_pages_of_a_pool_that_has_grown_are_named_in_every_stretch(tmp_path):
    """Also behind a snapshot, and in segments after that in which the pool grew."""
    taken = [[Allocated(ints(1), ints(8), (ints(50),))] for _ in range(300)]
    groups = [[Resized(0, 64)], *taken, "snapshot", *taken]
    write(tmp_path, groups, segment_bytes=4096)
    stretches = list(open_run(tmp_path).stretches())
    assert len(stretches) > 3
    assert all(stretch.names.takes_page(0, 50) for stretch in stretches)
    assert not any(stretch.names.names_page(0, 51) for stretch in stretches)


@pytest.mark.parametrize("wrong", [admitted(7, 1), admitted("\ud800", 1), Resized(0, "many")])
def test_an_event_that_is_refused_names_nothing(tmp_path, wrong):
    """An ill-formed event is an `EventError`, and the names of its segment are still written."""
    writer = LogWriter(tmp_path)
    writer.start(RunHeader(config=CONFIG))
    with pytest.raises(EventError):
        writer.append(0, 0, 0, [wrong])
    writer.append(0, 0, 0, [admitted("r2", 2)])
    writer.close()
    (stretch,) = open_run(tmp_path).stretches()
    assert stretch.names.names_request("r2")


def test_names_go_with_their_segments(tmp_path):
    """What a retention removes it removes whole; a ring of reserved space has no names."""
    groups = []
    for number in range(900):
        groups.append([admitted(f"a request with a long name {number}", 1)])
        if number % 30 == 29:
            groups.append("snapshot")
    kept = write(tmp_path / "kept", groups, retention=Retention(keep_bytes=1 << 14))
    segments = {path.stem for path in kept.glob("*.seg*")}
    assert min(segments) > "00000000"
    assert {path.stem for path in kept.glob("*.names")} == segments
    ring = write(tmp_path / "ring", groups, retention=Retention(ring_bytes=1 << 18))
    assert not list(ring.glob("*.names"))
