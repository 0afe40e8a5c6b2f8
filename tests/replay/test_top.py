"""`kvlife top`: what it shows of runs that are written, closed, left behind, or broken."""

import json
import os
import pty
import select
import subprocess
import sys

import pytest
import recorded_runs as made

from kvlife.events import Released
from kvlife.log import open_run
from kvlife.replay.cli import main
from kvlife.replay.watching.top_command import TopView
from kvlife.replay.watching.top_frame import BAR_WIDTH, bar_cells
from kvlife.replay.watching.top_run import WatchedRun

FOREVER = float("inf")


def looked_at(capsys, path, *options):
    """Run `kvlife top --once --json` and return its exit status and the runs."""
    status = main(["top", str(path), "--once", "--json", *options])
    out, err = capsys.readouterr()
    assert not err
    return status, json.loads(out)["runs"]


def test_one_look_at_a_run_that_is_written(tmp_path, capsys):
    """A live run is shown with its pages, rows and counts, as the engine has them."""
    engine = made.crowded_engine(tmp_path, seed=3, close=False)
    status, (run,) = looked_at(capsys, tmp_path)
    assert status == 0
    assert run["status"] == "live"
    stats = engine.stats()
    assert run["seq"] == stats.events
    assert run["requests"] == stats.requests
    assert run["rows"] == 8
    assert run["rows_held"] == stats.rows["HELD"]
    pages = run["pages"]["full"]
    assert pages["free"] == stats.pages["full"]["FREE"]
    assert pages["private"] == stats.pages["full"]["PRIVATE"]
    assert pages["cached_used"] + pages["cached_idle"] == stats.pages["full"]["CACHED"]
    assert sum(pages.values()) == 95
    assert run["violations"] == 0
    assert run["checked"] > 0
    assert not run["behind"]
    engine.close()


def test_counts_of_a_whole_run(tmp_path, capsys):
    """A small run without snapshots is counted from its first event on."""
    groups = [made.life_of("r1", 1, [1, 2]), [made.admitted("r2", 1)]]
    groups.append([Released("r2", 1, "aborted", (made.ints(),), made.ints())])
    made.observe(tmp_path, groups)
    _, (run,) = looked_at(capsys, tmp_path)
    assert run["status"] == "closed"
    assert (run["since_seq"], run["seq"]) == (0, 6)
    assert (run["admitted"], run["finished"], run["aborted"]) == (2, 1, 1)
    assert (run["prompt_tokens"], run["hit_tokens"]) == (16, 0)


def test_a_look_goes_on_where_the_last_one_ended(tmp_path):
    """The state follows the engine's through segments and snapshots, each event folded once."""
    engine = made.crowded_engine(tmp_path, seed=5, num_steps=100, close=False)
    (path,) = tmp_path.iterdir()
    watched = WatchedRun(path, "event")
    for number in range(60):
        watched.read_on(FOREVER, lambda: 0.0)
        assert watched.sight().seq == engine.next_seq
        assert watched._fold.ledger.digest() == engine.ledger.digest()
        engine.admit(f"more{number}", [1, 2, 3])
        engine.abort(f"more{number}")
    assert watched.sight().violations == 0
    assert watched._fold.num_events == watched.sight().seq - watched.sight().since_seq
    engine.close()
    watched.read_on(FOREVER, lambda: 0.0)
    assert watched.sight().status == "closed"


def test_a_look_ends_in_time_and_says_that_there_is_more(tmp_path):
    """When its time is over a look stops, and the next ones come to the end of the log."""
    made.crowded_engine(tmp_path, seed=5)
    (path,) = tmp_path.iterdir()
    watched = WatchedRun(path, "off")
    ticks = iter(range(10_000))
    looks = 0
    while not watched.is_up_to_date:
        watched.read_on(0, lambda: float(next(ticks)))
        looks += 1
    assert looks > 2
    assert watched.sight().seq == open_run(path).next_seq


def test_events_a_second_go_by_the_looks(tmp_path):
    """Two looks ten seconds apart with 20 new events between them: two a second."""
    engine = made.crowded_engine(tmp_path, seed=5, num_steps=20, close=False)
    (path,) = tmp_path.iterdir()
    watched = WatchedRun(path, "off")
    watched.read_on(FOREVER, lambda: 100.0)
    assert watched.sight().events_per_second is None
    for number in range(10):
        engine.mark(f"a{number}")
        engine.mark(f"b{number}")
    watched.read_on(FOREVER, lambda: 110.0)
    assert watched.sight().events_per_second == 2.0
    engine.close()


def test_a_run_that_a_violation_ended(tmp_path, capsys):
    """The last violation is named, and the exit status says that there was one."""
    groups = [
        [made.admitted("r1", 1)],
        [made.allocated([1], [8], [1, 2])],
        [made.admitted("r1", 1)],
    ]
    made.observe(tmp_path, groups)
    status, (run,) = looked_at(capsys, tmp_path)
    assert status == 1
    assert run["status"] == "ended"
    assert run["last_violation"].startswith("row-single-holder at seq 2")


@pytest.mark.parametrize("check", ["event", "off"])
def test_an_event_that_was_refused_changes_nothing(tmp_path, capsys, check):
    """r1 gives back page 3, which is FREE: it goes on to have pages 1 and 2, and has not ended."""
    groups = [
        [made.admitted("r1", 1)],
        [made.allocated([1], [8], [1, 2])],
        [made.released("r1", 1, [1, 2, 3], "aborted")],
    ]
    made.observe(tmp_path, groups)
    _, (run,) = looked_at(capsys, tmp_path, "--check", check)
    assert (run["status"], run["requests"], run["rows_held"]) == ("ended", 1, 1)
    assert (run["admitted"], run["aborted"]) == (1, 0)
    assert (run["pages"]["full"]["private"], run["pages"]["full"]["free"]) == (2, 29)
    assert "page-double-free at seq 2" in run["last_violation"]


def test_what_a_killed_process_left(tmp_path, capsys):
    """A run without an end mark and without a writer is told apart from a live one."""
    engine = made.crowded_engine(tmp_path / "live", seed=3, close=False)
    left = made.copy_of_unclosed(engine.log, tmp_path / "live", tmp_path / "left")
    _, (run,) = looked_at(capsys, left)
    assert run["status"] == "left"
    assert run["seq"] == engine.next_seq
    engine.close()


def test_the_newest_run_and_the_live_ones_are_shown(tmp_path):
    """Of a folder of runs, those that ended before the newest are left out."""
    made.observe(tmp_path, [made.life_of("r1", 1, [1, 2])])
    live = made.observe(tmp_path, [[made.admitted("r1", 1)]], close=False)
    made.observe(tmp_path, [made.life_of("r1", 1, [1, 2])])
    view = TopView(tmp_path, "event")
    sights = view.look(FOREVER)
    assert [sight.run for sight in sights] == ["run-000003", "run-000002"]
    assert [sight.status for sight in sights] == ["closed", "live"]
    live.close()
    assert [sight.status for sight in view.look(FOREVER)] == ["closed", "closed"]


def test_the_frame_has_the_figures_in_words(tmp_path, capsys):
    """The text names the run, its state, its pages and what was checked."""
    made.observe(tmp_path, [[made.admitted("r1", 1)], [made.allocated([1], [8], [1, 2])]])
    assert main(["top", str(tmp_path), "--once"]) == 0
    out, _ = capsys.readouterr()
    assert "run-000001  closed  seq 2" in out
    assert "private 2" in out
    assert "free 29" in out
    assert "1 of 4 held, 1 request" in out
    assert "2 events, no violation" in out


@pytest.mark.parametrize(
    ("private", "free", "cells"),
    [(0, 100, (0, BAR_WIDTH)), (50, 50, (20, 20)), (1, 9_999, (1, 39)), (100, 0, (BAR_WIDTH, 0))],
)
def test_bars_are_in_proportion(private, free, cells):
    """A bar has 40 cells; what there is takes one at least."""
    uses = {"private": private, "cached_used": 0, "cached_idle": 0, "quarantined": 0, "free": free}
    made_cells = bar_cells(uses)
    assert (made_cells[0], made_cells[-1]) == cells
    assert sum(made_cells) == BAR_WIDTH


@pytest.mark.parametrize("name", ["nothing-here", "."])
def test_where_there_is_no_run(tmp_path, capsys, name):
    """A folder without runs, or none at all, is unusable for one look."""
    assert main(["top", str(tmp_path / name), "--once"]) == 2
    assert "run" in capsys.readouterr().err


def test_a_damaged_run_is_shown_as_far_as_it_goes(tmp_path, capsys):
    """What cannot be followed any further says where and why, and is unusable."""
    made.observe(tmp_path, [made.life_of("r1", 1, [1, 2])])
    (segment,) = tmp_path.rglob("*.segz")
    content = bytearray(segment.read_bytes())
    content[-5] ^= 255
    segment.write_bytes(content)
    status, (run,) = looked_at(capsys, tmp_path)
    assert status == 2
    assert run["seq"] == 0
    assert segment.name in run["trouble"]


def test_looking_writes_nothing(tmp_path, capsys):
    """The files of a run are the same before and after."""
    made.crowded_engine(tmp_path, seed=3, num_steps=50)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    looked_at(capsys, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_q_ends_the_live_view(tmp_path):
    """On a terminal the view is drawn, and the key q ends it with what it found."""
    made.observe(tmp_path, [made.life_of("r1", 1, [1, 2])])
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kvlife.replay", "top", str(tmp_path), "--every", "0.05"]
    ended = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    seen = b""
    while b"run-000001" not in seen and select.select([ours], [], [], 60)[0]:
        seen += os.read(ours, 4096)
    assert b"run-000001" in seen
    os.write(ours, b"q")
    while ended.poll() is None and select.select([ours], [], [], 60)[0]:
        try:
            seen += os.read(ours, 4096)
        except OSError:
            break  # the other side of the terminal is closed
    assert ended.wait(60) == 0
    assert ended.stderr.read() == b""
    ended.stderr.close()
    os.close(ours)
