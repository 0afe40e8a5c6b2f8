"""`kvlife export --to perfetto|chrome`: read back, both tell the run as it was."""

import pytest
from recorded_runs import (
    admitted,
    allocated,
    answered,
    crowded_engine,
    life_of,
    observe,
    ran,
    released,
)
from timelines import of_chrome, of_perfetto
from told_runs import told_run

from kvlife import Checker
from kvlife.events import Marked
from kvlife.log import open_run

READ = {"chrome": of_chrome, "perfetto": of_perfetto}


@pytest.fixture(params=READ)
def target(request):
    if request.param == "perfetto":
        pytest.importorskip("perfetto", reason="the extra perfetto is not installed")
    return request.param


def exported(capsys, log, target, *arguments):
    output = log.parent / f"out.{target}"
    status, told = answered(capsys, "export", log, "--to", target, "-o", output, *arguments)
    assert status == 0
    assert told["bytes"] == output.stat().st_size
    return READ[target](output)


def test_request_has_a_track_with_its_phases(tmp_path, capsys, target):
    """A request's row, prefill, decode, waiting and draining are slices on its own track."""
    timeline = exported(capsys, told_run(tmp_path / "log"), target)
    # Seq n is at n us: the first event, at 1 us by its clock, is where the timeline begins.
    assert [(at, what, name) for at, what, name, _ in timeline.told["requests/r4"]] == [
        (16_000, "begin", "row 3"),
        (16_000, "begin", "prefill"),
        (18_000, "end", ""),
        (18_000, "end", ""),
        (18_000, "begin", "waiting"),
        (19_000, "end", ""),
        (19_000, "begin", "row 2"),
        (19_000, "begin", "prefill"),
        (22_000, "instant", "rolled back"),
        (23_000, "instant", "aborted"),
        (23_000, "end", ""),
        (23_000, "end", ""),
        (23_000, "begin", "draining"),
        (24_000, "end", ""),
    ]
    assert timeline.names("requests/r3") == ["row 2", "prefill", "decode", "published", "finished"]
    assert timeline.told["requests/r4"][0][3] == {"seq": 16, "prompt_len": 12, "prefix_len": 8}
    # What goes on where the log ends stays open.
    assert timeline.depths("requests/r5") == [1, 2]


def test_session_and_pin_have_tracks(tmp_path, capsys, target):
    """A session's turns and pauses, and a pin's time, are slices on tracks of their own."""
    timeline = exported(capsys, told_run(tmp_path / "log"), target)
    assert [(at, what, name) for at, what, name, _ in timeline.told["sessions/s1"]] == [
        (5_000, "begin", "idle"),
        (6_000, "end", ""),
        (6_000, "begin", "turn of r2"),
        (9_000, "end", ""),
        (9_000, "begin", "idle"),
        (10_000, "end", ""),
        (10_000, "instant", "closed"),
    ]
    ((begun, _, name, args), (ended, what, _, _)) = timeline.told["pins/p1"]
    assert (begun, name, ended, what) == (3_000, "copy", 4_000, "end")
    assert args == {"seq": 3, "pages": 1, "writes": 0, "owner": "r1"}
    assert timeline.names("log/notes") == ["all quiet"]


def test_pool_has_a_track_counters_and_flows(tmp_path, capsys, target):
    """Pages are counted by state; a flow goes from a holder's first pages to their release."""
    timeline = exported(capsys, told_run(tmp_path / "log"), target)
    assert timeline.names("pools/full") == [
        "first pages of r1",
        "s1 closed",
        "first pages of r3",
        "r3 released",
        "first pages of r4",
        "r4 retracted",
        "first pages of r4",
        "row 2 drained",
        "evicted for pressure",
        "first pages of r5",
    ]
    ends = [(begun[1], ended and ended[1]) for begun, ended in timeline.flows.values()]
    # The session keeps what its first turn was given; r5 holds its page to the end.
    assert ends == [
        (1_000, 10_000),
        (12_000, 15_000),
        (17_000, 18_000),
        (20_000, 24_000),
        (28_000, None),
    ]
    free = timeline.counts["pools/full: FREE pages"]
    assert free[:4] == [(0, 31), (1_000, 29), (7_000, 28), (10_000, 31)]
    assert free[-1] == (28_000, 29)
    assert timeline.counts["pools/full: QUARANTINED pages"] == [(0, 0), (22_000, 1), (24_000, 0)]
    assert timeline.counts["engine/tokens allocated"][:3] == [(0, 0), (1_000, 8), (7_000, 12)]
    assert timeline.counts["engine/steps in flight"] == [(0, 0), (21_000, 1), (24_000, 0)]


def test_both_formats_tell_the_same(tmp_path, capsys):
    """A run under pressure reads the same from both files; slices are nested, times in order."""
    pytest.importorskip("perfetto", reason="the extra perfetto is not installed")
    crowded_engine(tmp_path / "log", seed=4)
    chrome, perfetto = (exported(capsys, tmp_path / "log", target) for target in READ)
    assert chrome == perfetto
    assert len(chrome.told) > 100
    for track, told in chrome.told.items():
        assert min(chrome.depths(track)) >= 0
        times = [at for at, *_ in told]
        assert times == sorted(times)
    assert sum(ended is not None for _, ended in chrome.flows.values()) > 100


def test_axis_can_be_events(tmp_path, capsys, target):
    """Where the clock stood still, or on request, an event takes a microsecond."""
    timeline = exported(capsys, told_run(tmp_path / "log"), target, "--axis", "events")
    assert timeline.told["requests/r5"][0][0] == 27_000
    observe(tmp_path / "still", [[event] for event in life_of("r1", 1, [1, 2])])
    timeline = exported(capsys, tmp_path / "still", target)
    assert timeline.told["requests/r1"][-1][0] == 3_000


def test_timeline_of_a_part_begins_with_who_is_there(tmp_path, capsys, target):
    """--from and --until: what is held at the beginning is open there, and nothing else is told."""
    log = told_run(tmp_path / "log")
    timeline = exported(capsys, log, target, "--from", 13, "--until", 18)
    assert [(at, what, name) for at, what, name, _ in timeline.told["requests/r3"]] == [
        (0, "begin", "row 2"),
        (0, "begin", "prefill"),
        (0, "end", ""),
        (0, "begin", "decode"),
        (1_000, "instant", "published"),
        (2_000, "instant", "finished"),
        (2_000, "end", ""),
        (2_000, "end", ""),
    ]
    assert set(timeline.told) == {"requests/r3", "requests/r4", "pools/full"}
    assert timeline.counts["pools/full: FREE pages"] == [(0, 29), (4_000, 28), (5_000, 29)]


def test_faulty_log_is_told_as_it_is(tmp_path, capsys, target):
    """Facts that cannot be, and the violation, are on the timeline, and slices stay nested."""
    observe(
        tmp_path / "log",
        [
            [admitted("r1", 1)],
            [allocated([1], [8], [1, 2])],
            [admitted("r1", 2)],
            [released("ghost", None, [7])],
            [released("r1", 1, [1, 1])],
            [released("r1", 1, [1, 2])],
            [Marked("", idle=False)],
        ],
        checker=Checker(policy="collect"),
    )
    timeline = exported(capsys, tmp_path / "log", target)
    for track in timeline.told:
        assert min(timeline.depths(track)) >= 0
    assert timeline.names("log/notes") == ["mark"]
    double = [[admitted("r1", 1)], [allocated([1], [8], [1, 1])]]
    observe(tmp_path / "ended", double)
    timeline = exported(capsys, tmp_path / "ended", target)
    assert timeline.names("log/notes") == [
        "not applied: Allocated",
        "VIOLATED: page-double-alloc",
    ]
    assert timeline.told["log/notes"][1][3] == {"seq": 2, "by seq": 1}


def test_empty_and_gone(tmp_path, capsys, target):
    """A run without events is a timeline with counters alone; seqs that are not there are told."""
    observe(tmp_path / "empty", [])
    timeline = exported(capsys, tmp_path / "empty", target)
    assert timeline.counts["pools/full: FREE pages"] == [(0, 31)]
    log = told_run(tmp_path / "log")
    for arguments, said in (
        (["--from", 29], "the log's events are [0, 29)"),
        (["--from", 5, "--until", 4], "lies before the first event"),
        (["--axis", "moon"], "no such axis"),
    ):
        output = tmp_path / "x"
        status, out, err = ran(capsys, "export", log, "--to", target, "-o", output, *arguments)
        assert (status, out) == (2, "")
        assert said in err
        assert not output.exists()
    assert open_run(log).next_seq == 29
