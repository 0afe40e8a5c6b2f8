"""`kvlife log`: the events of a log, those that are asked for."""

import json
import subprocess
import sys
from pathlib import Path

import held_runs as held
import numpy as np
import pytest
import recorded_runs as made

from kvlife import LogWriter, open_run
from kvlife.events import Allocated, Resized
from kvlife.log import RunHeader
from kvlife.replay.history.selecting import RequestRows, Selection, names_page

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(tmp_path):
    """The run in which something is held in every way."""
    held.every_kind(tmp_path / "log")
    return tmp_path / "log"


def listed(capsys, *arguments):
    """The objects that `kvlife log --json` prints."""
    status, out, _ = made.ran(capsys, "log", *arguments, "--json")
    assert status == 0
    return [json.loads(line) for line in out.splitlines()]


def seqs(capsys, *arguments):
    return [item["seq"] for item in listed(capsys, *arguments)]


def test_every_event_is_a_line(run, capsys):
    """26 events; a line has seq, step, time, kind and what the event says."""
    status, out, _ = made.ran(capsys, "log", run)
    lines = out.splitlines()
    assert (status, len(lines)) == (0, 26)
    assert lines[1].split(maxsplit=4) == [
        "1",
        "0",
        "0.000000",
        "s",
        "Allocated rows 1, allocated_len 12, pages 1-3",
    ]


def test_an_object_has_the_fields_of_its_event(run, capsys):
    """Arrays are whole, by cache group, and 64-bit numbers are hexadecimal."""
    item = listed(capsys, run, "--from", 3, "--to", 3)[0]
    assert item == {
        "seq": 3,
        "step": 0,
        "time_ns": 0,
        "event": "Protected",
        "fields": {
            "row": 1,
            "protected_len": 8,
            "keys": {"full": ["000000000000000b", "000000000000000c"]},
            "rebinds": [],
        },
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--kind", "retracted"], [25]),
        (["--kind", "Pinned", "--kind", "stepdispatched"], [9, 12, 16]),
        (["--page", 4], [5, 8]),
        (["--page", 8], [15, 17]),
        (["--row", 3], [14, 15, 16, 17]),
        (["--request", "r2"], [4, 5, 6, 7, 8]),
        (["--request", "r3"], [10, 11, 12, 13]),
        (["--request", "r6", "--kind", "Committed"], [24]),
        (["--from", 20, "--to", 22], [20, 21, 22]),
        (["--limit", 2], [0, 1]),
        (["--request", "r4", "--from", 16], [16, 17]),
        (["--page", 20], []),
        (["--limit", 0], []),
    ],
)
def test_events_are_chosen(run, capsys, arguments, expected):
    """Each filter by itself, and some together."""
    assert seqs(capsys, run, *arguments) == expected


def test_steps_and_times_are_half_open(tmp_path, capsys):
    """Steps 0 to 9 at whole seconds."""
    writer = LogWriter(tmp_path)
    writer.start(RunHeader(config=made.CONFIG))
    for step in range(10):
        writer.append(step, step, step * 10**9, [made.admitted(f"r{step}", 1)])
    writer.close()
    assert seqs(capsys, tmp_path, "--step", "3") == [3]
    assert seqs(capsys, tmp_path, "--step", "3:5") == [3, 4]
    assert seqs(capsys, tmp_path, "--step", "8:") == [8, 9]
    assert seqs(capsys, tmp_path, "--step", "8:" + 30 * "9") == [8, 9]
    assert seqs(capsys, tmp_path, "--time", ":1.5") == [0, 1]
    assert seqs(capsys, tmp_path, "--time", "7.5:9") == [8]


def test_a_page_that_the_pool_once_had_is_no_error(tmp_path, capsys):
    """The pool of 32 pages grew to 40 and shrank again: page 39 has a history, page 40 has none."""
    made.observe(
        tmp_path,
        [[Resized(0, 40)], [made.admitted("r1", 1), made.allocated([1], [4], [39])],
         [made.released("r1", 1, [39])], [Resized(0, 32)]],
    )  # fmt: skip
    assert seqs(capsys, tmp_path, "--page", 39) == [2, 3]
    status, _, err = made.ran(capsys, "log", tmp_path, "--page", 40)
    assert (status, "has pages [1, 40) at most" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kind", "relased"], "did you mean Released?"),
        (["--step", "5:5"], "holds nothing"),
        (["--step", "x"], "give A:B"),
        (["--time", "nan:"], "give A:B"),
        (["--from", 26], "[0, 26)"),
        (["--from", 5, "--to", 4], "before the first event"),
        (["--step", "1.5"], "a step is a whole number"),
        (["--step", "inf"], "a step is a whole number"),
        (["--step", "1e400:"], "a step is a whole number"),
        (["--step", "0x10"], "a step is a whole number"),
        (["--time", "inf"], "give A:B"),
        (["--time", "1e400:"], "give A:B"),
        (["--row", 99], "rows are"),
        (["--row", 0], "rows are [1, "),
        (["--page", 0], "page 0 is reserved"),
        (["--page", -1], "page -1 is out of range"),
        (["--page", 32], "page space full has pages [1, 32) at most"),
        (["--page", 2**63 - 1], "is out of range"),
        (["--page", 1, "--group", "swa"], "full"),
        (["--group", "full"], "--page"),
        (["--limit", -1], "at least 0"),
        (["--request", "nobody"], "names the request 'nobody'"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(run, capsys, arguments, words):
    """Exit status 2, and a message that says what would do."""
    status, out, err = made.ran(capsys, "log", run, *arguments)
    assert (status, out) == (2, "")
    assert words in err


def test_nothing_found_is_said(run, capsys):
    """No line, and a note on stderr."""
    status, out, err = made.ran(capsys, "log", run, "--request", "r1", "--kind", "Resized")
    assert (status, out) == (0, "")
    assert "no event of the log fits" in err


def test_ids_cannot_write_to_the_terminal(tmp_path, capsys):
    """A control character in an id is shown as an escape."""
    made.observe(tmp_path, [[made.admitted("r\x1b[31m\n", 1)]], close=False).close()
    _, out, _ = made.ran(capsys, "log", tmp_path)
    assert "\x1b" not in out
    assert "r\\x1b[31m\\n" in out


def test_a_reader_that_leaves_ends_it_quietly(tmp_path):
    """As in `kvlife log LOG | head -1`."""
    made.crowded_engine(tmp_path, seed=1)
    command = [sys.executable, "-m", "kvlife.replay", "log", str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() in (0, 141)


def test_a_damaged_log_is_shown_up_to_the_damage(tmp_path, capsys):
    """Exit status 2; with --salvage it goes on, and says over what."""
    made.crowded_engine(tmp_path, seed=1, close=False).log.wait()
    (folder,) = tmp_path.iterdir()
    segment = sorted(folder.glob("*.segz"))[1]
    segment.write_bytes(segment.read_bytes()[:-9])
    first_seq = int(segment.stem.split("-")[1])
    status, out, err = made.ran(capsys, "log", folder)
    assert status == 2
    assert int(out.splitlines()[-1].split()[0]) == first_seq - 1
    assert segment.name in err
    status, out, err = made.ran(capsys, "log", folder, "--salvage")
    assert status == 0
    assert int(out.splitlines()[-1].split()[0]) > first_seq
    assert f"salvage left out events from seq {first_seq}" in err


@pytest.mark.soak
def test_names_change_nothing_but_what_is_read(tmp_path, seed, capsys):
    """Pages, rows and requests of a random run: as a look at every event says, with and without."""
    made.crowded_engine(tmp_path, seed=seed, num_steps=150)
    run = open_run(tmp_path)
    items = list(run.events())
    rng = np.random.default_rng(seed)
    for _ in range(2):
        for page in rng.integers(1, 96, 4).tolist():
            expected = [item.seq for item in items if names_page(item.event, 0, page, run.layout)]
            assert chosen(tmp_path, page=(0, page)) == expected
        rid = f"r{rng.integers(100)}"
        assert chosen(tmp_path, request=rid) == followed(items, rid)
        for path in tmp_path.glob("*/*.names"):
            path.unlink()


def chosen(path, **wanted):
    run = open_run(path)
    return [item.seq for item in Selection(**wanted).select(run, 0, run.next_seq)]


def followed(items, rid):
    """The events of a request in a log without sessions, steps and pins."""
    row, found = None, []
    for item in items:
        event = item.event
        mine = getattr(event, "rid", None) == rid
        rows = getattr(event, "rows", None)
        if rows is None and getattr(event, "row", None) is not None:
            rows = [event.row]
        held_row = row is not None and rows is not None and row in list(rows)
        if mine and type(event).__name__ in ("Admitted", "Resumed"):
            row = event.row
        elif mine:
            row = None
        if mine or held_row:
            found.append(item.seq)
    return found


def test_the_array_of_a_batch_is_looked_up_once_for_each_row_that_is_held():
    """The same rows stand for another answer once the request has another row."""
    rows = made.ints(1, 2, 3, 5, 6)

    follower = RequestRows("r1", 4)
    step = Allocated(rows, made.ints(4, 4, 4, 4, 4), (made.ints(),))
    assert not follower.concerns(step)
    assert follower.concerns(made.released("r1", 4, []))
    assert follower.concerns(made.admitted("r1", 5))
    assert follower.concerns(step)
