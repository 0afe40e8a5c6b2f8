"""Logs of every format version stay readable, and today's writer still writes the same bytes."""

from pathlib import Path

import golden_columns
import golden_later
import numpy as np
import pytest
from golden_v1 import CONFIG, DIGEST, HEADER, groups, one_of_each, write

from kvlife.events import EVENT_TYPES, same_event
from kvlife.log import open_run, runs

GOLDEN = Path(__file__).resolve().parent / "golden"
V1 = GOLDEN / "v1"
LATER = GOLDEN / "v1-later"
SNAPSHOT_2 = GOLDEN / "snapshot-2"


def test_the_golden_logs_have_every_kind():
    """No kind of event is missing in what the golden logs hold."""
    later = {type(event) for group in golden_later.GROUPS for event in group}
    assert {type(event) for event in one_of_each()} | later == set(EVENT_TYPES)


@pytest.mark.parametrize("number", [0, 1])
def test_version_1_is_read(number):
    """Header, events in their envelopes, groups and end mark are those written by hand."""
    run = open_run(runs(V1)[number])
    assert run.header == HEADER
    assert (run.begins_at, run.next_seq, run.gaps, run.warnings) == (0, 628, [], [])
    assert (run.closed.num_events, run.closed.digest) == (628, DIGEST)
    got = list(run.groups())
    wanted = groups()
    assert [len(group) for group in got] == [1] * 22 + [3, 3] + [1] * 600
    seq = 0
    for step, (recorded, group) in enumerate(zip(got, wanted, strict=True)):
        for one, event in zip(recorded, group, strict=True):
            assert (one.seq, one.step, one.time_ns) == (seq, 2 * step, 1000 + step * 8_000_000)
            assert same_event(one.event, event)
            seq += 1


def test_a_few_values_of_version_1_by_hand():
    """The same, without any of today's classes for what is wanted."""
    events = [recorded.event for recorded in open_run(runs(V1)[0]).events()]
    admitted, protected, last = events[0], events[4], events[-2]
    assert (admitted.rid, admitted.row, admitted.namespace) == ("r1", 1, 9223372036854775813)
    assert [pages.tolist() for pages in admitted.pages] == [[10, 11], [3]]
    assert protected.keys[0].tolist() == [7, 9223372036854775808]
    assert protected.rebinds.tolist() == [[0, 1, 10, 20], [1, 0, 3, 5]]
    assert last.rows.tolist() == list(range(1, 80, 2))
    assert last.allocated_len.tolist() == list(range(299, 419, 3))
    assert [pages.tolist() for pages in last.pages] == [[300, 2693], []]
    assert events[-1].rows is last.rows


def test_the_snapshot_of_version_1_is_read():
    """Its columns, its bytes and its digest are those written by hand."""
    run = open_run(runs(V1)[0])
    assert run.snapshots == [28]
    state = run.snapshot(28)
    assert list(state.arrays) == ["pages", "keys"]
    assert state.arrays["pages"].tolist() == [5, 6, 70_000]
    assert state.arrays["pages"].dtype == np.int32
    assert state.arrays["keys"].tolist() == [[1, 18446744073709551615]]
    assert (state.meta, state.digest) == (b"books", 77)
    assert next(run.events(28)).seq == 28


def test_a_snapshot_of_version_2_is_read():
    """Columns in planes, marks and plain are those written by hand."""
    run = open_run(runs(SNAPSHOT_2)[0])
    path = next(run.folder.glob("*.snap"))
    assert int.from_bytes(path.read_bytes()[8:10], "little") == 2
    state = run.snapshot(1)
    assert list(state.arrays) == list(golden_columns.ARRAYS)
    for name, array in golden_columns.ARRAYS.items():
        assert state.arrays[name].dtype == array.dtype
        assert np.array_equal(state.arrays[name], array), name
    assert (state.meta, state.digest) == (b"books", 99)


@pytest.mark.parametrize(
    ("golden", "number", "write"), [(V1, 1, write), (LATER, 0, golden_later.write)]
)
def test_the_writer_still_writes_the_same_bytes(tmp_path, golden, number, write):
    """The raw runs of the golden logs are written again, byte for byte."""
    write(tmp_path)
    old, new = runs(golden)[number], runs(tmp_path)[number]
    assert CONFIG == open_run(new).header.config
    # The files of names came later; readers of the version do not look at them.
    written = {path.name for path in new.iterdir() if path.suffix != ".names"}
    assert written == {path.name for path in old.iterdir()}
    for path in old.iterdir():
        assert (new / path.name).read_bytes() == path.read_bytes(), path.name


def test_digests_of_contents_are_read():
    """Kinds that came later, by hand: pages and digests of 64 bits, and none of either."""
    run = open_run(runs(LATER)[0])
    assert (run.warnings, run.unknown, run.closed.digest) == ([], {}, golden_later.DIGEST)
    first, second, empty = [recorded.event for recorded in run.events()][1:]
    assert (first.group, first.pages.tolist()) == (0, [10, 21, 22])
    assert first.digests.tolist() == [1, 9223372036854775815, 18446744073709551615]
    assert (second.group, second.pages.tolist(), second.digests.tolist()) == (1, [199], [0])
    assert (empty.group, empty.pages.size, empty.digests.size) == (1, 0, 0)
