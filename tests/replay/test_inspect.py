"""`kvlife inspect`: the state of a log at any event."""

import json
import re

import attrs
import held_runs as held
import numpy as np
import pytest
import recorded_runs as made

from kvlife import CacheGroup, LogWriter, ReqKvInfo
from kvlife.replay.output.columns import BLOCKS, LETTERS, duration, ladder_bar, ranges, window_bar


@pytest.fixture
def run(tmp_path):
    """The run in which something is held in every way."""
    held.every_kind(tmp_path / "log")
    return tmp_path / "log"


def test_pages_are_counted_by_what_they_are(run, capsys):
    """31 pages: 22 free, and the nine in use as the run's events leave them."""
    status, seen = made.answered(capsys, "inspect", run)
    assert status == 0
    counts = {name: count["pages"] for name, count in seen["pages"]["full"].items()}
    assert counts == {
        "free": 22,
        "cached, evictable": 1,
        "cached, referenced": 2,
        "live": 3,
        "draining": 1,
        "cached, pinned": 1,
        "quarantined": 1,
        "lost": 0,
    }


def test_rows_books_and_steps_are_listed(run, capsys):
    """Four rows in use, one session, one request that waits, one pin, two steps in flight."""
    _, seen = made.answered(capsys, "inspect", run, "--sort", "row")
    rows = [(row["row"], row["state"], row["request"], row["session"]) for row in seen["rows"]]
    assert rows == [
        (1, "HELD", "r1", None),
        (2, "DRAINING", None, None),
        (3, "HELD", "r4", None),
        (4, "HELD", None, "s1"),
    ]
    assert (seen["seq"], seen["rows_free"]) == (held.LAST_SEQ, 2)
    assert list(seen["sessions"]) == ["s1"]
    assert seen["waiting"]["r6"]["committed_len"] == 4
    assert seen["pins"]["p1"]["pages"] == [5]
    assert [(step["step"], step["rows"]) for step in seen["steps"]] == [(7, [2]), (8, [3])]


def test_at_shows_the_state_behind_an_event(run, capsys):
    """Behind seq 2, r1 has its three pages; before it had none, r2 was not there."""
    _, seen = made.answered(capsys, "inspect", run, "--at", 2)
    (row,) = seen["rows"]
    assert (seen["seq"], row["request"], row["pages"]) == (2, "r1", {"full": 3})
    assert (row["protected_len"], row["committed_len"], row["allocated_len"]) == (0, 8, 12)
    _, seen = made.answered(capsys, "inspect", run, "--at", 0)
    assert seen["rows"][0]["pages"] == {"full": 0}


def test_the_text_has_it_all_within_100_columns(run, capsys):
    """The header, pages, the ladder of each row, and the books; no line is too wide."""
    status, out, err = made.ran(capsys, "inspect", run)
    assert (status, err) == (0, "")
    assert max(len(line.replace(str(run), "")) for line in out.splitlines()) <= 100
    assert "26 events" in out
    assert "3 held, 1 draining, 2 free of 6" in out
    assert re.search(r"1  request r1 +3  █+▓* *░+ +8 +8 +12", out)
    for name in ("s1", "r6", "p1", "full: 1 cached, pinned, 1 quarantined, 1 draining"):
        assert name in out


def test_rows_come_in_the_order_and_number_asked_for(run, capsys):
    """Most pages first, then as --sort says; --limit cuts, and says what it cut."""
    _, seen = made.answered(capsys, "inspect", run)
    assert seen["rows"][0]["row"] == 1
    _, seen = made.answered(capsys, "inspect", run, "--sort", "age")
    assert [row["row"] for row in seen["rows"]] == [1, 2, 3, 4]
    _, out, _ = made.ran(capsys, "inspect", run, "--limit", 1)
    assert "3 rows more: --all" in out
    _, out, _ = made.ran(capsys, "inspect", run, "--limit", 0, "--all")
    assert "more: --all" not in out


def test_a_row_is_shown_in_full(run, capsys):
    """Row 1: its holder, the event that bound it, its last one, and each page with its state."""
    status, out, _ = made.ran(capsys, "inspect", run, "--row", 1)
    assert status == 0
    assert "row         1, HELD: request r1" in out
    assert re.search(r"bound +seq 0, step 0, .* ago: Admitted", out)
    assert re.search(r"last event +seq 3, step 0, .* ago: Protected", out)
    assert "[0, 8)  CACHED, refs 1: pages 1-2" in out
    assert "[8, 12)  PRIVATE, refs 1: pages 3" in out
    assert "keys 000000000000000b, 000000000000000c" in out


@pytest.mark.parametrize(
    ("option", "name", "row", "bound"),
    [("--request", "r4", 3, 14), ("--session", "s1", 4, 21), ("--row", "2", 2, None)],
)
def test_one_holder_is_found_by_its_name(run, capsys, option, name, row, bound):
    """A request, a session and a row that drains, each with the event that gave it its row."""
    status, seen = made.answered(capsys, "inspect", run, option, name)
    assert (status, seen["row"]) == (0, row)
    assert (seen["bound"] and seen["bound"]["seq"]) == bound


def test_a_request_that_waits_is_shown(run, capsys):
    """r6 was retracted at seq 25, without a backup."""
    status, out, _ = made.ran(capsys, "inspect", run, "--request", "r6")
    assert status == 0
    assert re.search(r"waits +retracted, .*seq 25, .*Retracted", out)
    _, seen = made.answered(capsys, "inspect", run, "--request", "r6")
    assert seen["waiting"]["host_pages"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--request", "r2"], "no request r2 after seq 25 (step 0); the log names it from seq 4"),
        (["--request", "r44"], "nor anywhere in the log; near it are r4"),
        (["--session", "s2"], "near it are s1"),
        (["--row", "6"], "row 6 is FREE after seq 25 (step 0); in use: 1-4"),
        (["--row", "7"], "no row 7: the rows are 1 to 6"),
        (["--row", "0"], "no row 0"),
        (["--at", "26"], "has events up to seq 25"),
        (["--at", "-1"], "has events up to seq 25"),
        (["--row", "1", "--request", "r1"], "--row and --request exclude each other"),
        (["--limit", "-1"], "--limit"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(run, capsys, options, said):
    """Exit status 2, and a message that says what is asked, what is the case, what to do."""
    status, out, err = made.ran(capsys, "inspect", run, *options)
    assert (status, out) == (2, "")
    assert said in err


def test_hostile_ids_are_shown_escaped(tmp_path, capsys):
    """No control sequence of an id comes to the terminal, nor is it read as markup."""
    rid = "\x1b[1m\u202e[b]"
    made.observe(tmp_path, [made.life_of(rid, 1, [1, 2])[:3]])
    for options in ([], ["--request", rid], ["--row", "1"]):
        status, out, _ = made.ran(capsys, "inspect", tmp_path, *options)
        assert status == 0
        assert "request \\x1b[1m\\u202e[b]" in out
        assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", out)
    _, _, err = made.ran(capsys, "inspect", tmp_path, "--request", rid + "x")
    assert "\x1b" not in err


def test_long_names_and_numbers_keep_within_100_columns(tmp_path, capsys):
    """Ids of 200 signs are cut in tables; shown alone, they are whole."""
    rid = "request-" * 25
    config = attrs.evolve(
        made.CONFIG, max_context_len=1 << 20, max_requests=2000, page_size=256, num_pages=5000
    )
    pages = range(1, 4097)
    facts = [[made.admitted(rid, 1999, 1 << 20), made.allocated([1999], [1 << 20], pages)]]
    observer = made.observe(tmp_path, facts, config=config, close=False)
    for command in (["inspect"], ["leaks"], ["why", "reset"]):
        status, out, _ = made.ran(capsys, command[0], tmp_path, *command[1:])
        assert status == 0
        assert max(len(line) for line in out.splitlines()[1:]) <= 100
        assert "request reques" in out
    _, out, _ = made.ran(capsys, "inspect", tmp_path, "--row", 1999)
    assert rid in out
    observer.close()


def test_an_empty_run_is_shown(tmp_path, capsys):
    """A run without events has a state, and no event to ask for."""
    made.observe(tmp_path, [])
    status, out, _ = made.ran(capsys, "inspect", tmp_path)
    assert status == 0
    assert "before its first event" in out
    status, _, err = made.ran(capsys, "inspect", tmp_path, "--at", 0)
    assert status == 2
    assert "no events" in err


def test_a_run_that_is_written_is_shown_as_far_as_it_came(tmp_path, capsys):
    """While its writer is at work, the run's last event is that of the moment."""
    observer = held.every_kind(tmp_path, close=False)
    status, out, _ = made.ran(capsys, "inspect", tmp_path)
    observer.close()
    assert status == 0
    assert "being written" in out
    assert "seen up to seq 25" in out


def test_a_run_that_was_killed_is_shown_with_a_note(tmp_path, capsys):
    """Without an end mark the state is that behind the last event, and the text says so."""
    observer = held.every_kind(tmp_path / "log", close=False)
    killed = made.copy_of_unclosed(observer.log, tmp_path / "log", tmp_path / "killed")
    observer.close()
    status, out, _ = made.ran(capsys, "inspect", killed)
    assert status == 0
    assert "not closed" in out
    assert "after seq 25" in out


def test_the_state_of_a_violation_is_shown(tmp_path, capsys):
    """The event that broke an invariant was not applied: shown is the state before it."""
    made.observe(tmp_path, [made.life_of("r1", 1, [1, 2]), [made.released("r1", 1, [1, 2])]])
    for options in ([], ["--at", 4]):
        status, out, _ = made.ran(capsys, "inspect", tmp_path, *options)
        assert status == 0
        assert "after seq 3" in out
        assert "release-once was broken by event 4, which ended the run: it was not applied" in out
        assert "ended by release-once at seq 4" in out


def test_salvage_shows_the_last_state_that_can_be_reached(tmp_path, capsys):
    """Where the end is damaged, the state is that of the last events that follow a known one."""
    lives = [made.life_of(f"r{n}", 1, [1, 2]) for n in range(3)]
    facts = [lives[0], "snapshot", lives[1], lives[2]]
    writer = LogWriter(tmp_path, compress=False, snapshot_every_bytes=1 << 20)
    made.observe(tmp_path, facts, writer=writer)
    (path,) = tmp_path.rglob("*.seg")
    content = bytearray(path.read_bytes())
    content[content.index(b"r2")] ^= 0x40
    path.write_bytes(content)
    status, _, err = made.ran(capsys, "inspect", tmp_path)
    assert status == 2
    assert "--salvage" in err
    status, out, _ = made.ran(capsys, "inspect", tmp_path, "--salvage")
    assert status == 0
    assert "after seq 7" in out
    assert "are missing" in out


def test_inspecting_never_writes(run, capsys):
    """All commands that look leave each file of the run as it was."""
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for arguments in (
        ["inspect", run],
        ["inspect", run, "--row", 1],
        ["leaks", run],
        ["why", run, "reset"],
    ):
        made.ran(capsys, *arguments)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_window_is_drawn_with_its_gap(tmp_path, capsys):
    """In a window group the bar has a gap from the floor to the cursor."""
    made.crowded_engine(tmp_path, seed=2, groups=(CacheGroup("full"), CacheGroup("swa", window=8)))
    status, out, _ = made.ran(capsys, "inspect", tmp_path, "--at", 300)
    assert status == 0
    assert "swa from " in out
    assert "passed by the window" in out


def test_bars_are_to_scale():
    """Of 16 tokens in 8 signs, 4 are published, 4 more committed, 8 more allocated."""
    record = ReqKvInfo(cache_protected_len=4, kv_committed_len=8, kv_allocated_len=16)
    assert ladder_bar(record, 16, 8, BLOCKS) == "██▓▓░░░░"
    assert ladder_bar(record, 32, 8, LETTERS) == "#=--"
    assert window_bar("██▓▓░░░░", 2, 8, 16, 8, BLOCKS) == "█···░░░░"
    assert window_bar("██▓▓", 0, 0, 16, 8, BLOCKS) == "██▓▓"
    # The shortest of all is still seen.
    one = ReqKvInfo(kv_allocated_len=1)
    assert ladder_bar(one, 100_000, 8, BLOCKS) == "░"


def test_numbers_are_written_as_ranges():
    """Runs that rise or fall by one are ranges; the order stays."""
    assert ranges([3, 4, 5, 9, 12, 11, 10]) == "3-5, 9, 12-10"
    assert ranges([1, 2, 1]) == "1-2, 1"
    assert ranges([]) == ""


def test_durations_are_in_one_unit():
    """From milliseconds to days."""
    spans = [duration(seconds) for seconds in (0.0015, 59, 90, 7200, 172_800)]
    assert spans == ["1.5 ms", "59.0 s", "1.5 min", "2.0 h", "2.0 d"]


def test_json_has_every_row(run, capsys):
    """A limit is for people: machines get all rows."""
    _, out, _ = made.ran(capsys, "inspect", run, "--limit", 1, "--json")
    assert len(json.loads(out)["rows"]) == 4


@pytest.mark.soak
def test_bytes_at_random_end_in_a_state_or_a_message(tmp_path, capsys, seed):
    """A byte changed anywhere, or a file cut: each command ends with 0 or 2, and no traceback."""
    made.crowded_engine(tmp_path, seed=4, num_steps=40)
    (run,) = tmp_path.iterdir()
    rng = np.random.default_rng(seed)
    files = {path: path.read_bytes() for path in sorted(run.iterdir()) if path.stat().st_size}
    for _ in range(8):
        path = list(files)[rng.integers(len(files))]
        content = bytearray(files[path])
        content[rng.integers(len(content))] ^= int(rng.integers(1, 256))
        path.write_bytes(content if rng.integers(5) else content[: rng.integers(1, len(content))])
        for command in (["inspect"], ["leaks"], ["why", "reset"], ["inspect", "--row", 1]):
            options = ["--salvage"] * int(rng.integers(2)) + ["--json"] * int(rng.integers(2))
            status, out, err = made.ran(capsys, command[0], run, *command[1:], *options)
            assert status in (0, 2)
            assert bool(out) == (status == 0)
            assert "Traceback" not in err
        path.write_bytes(files[path])
