"""The host's pages where a run is looked at as a whole: the report, top, a timeline."""

import json

import pytest
import recorded_runs as made
from reports import reported
from timelines import of_chrome

from kvlife import KvEngine, LogWriter, PoolConfig, open_run
from kvlife.replay.cli import main
from kvlife.testing.faults import FAULTS, write_faulty_run


@pytest.fixture
def log(tmp_path):
    """r1 waits with 2 host pages, r2 had 3 and came back, r3 had 1 and was aborted: of 7."""
    config = PoolConfig(page_size=4, num_pages=20, max_requests=4, max_context_len=40, host_pages=8)
    with KvEngine(config, log=LogWriter(tmp_path), key_seed=1, clock=lambda: 0) as engine:
        for rid, num in (("r1", 8), ("r2", 12), ("r3", 3)):
            engine.admit(rid, list(range(num)))
            engine.allocate([rid], [num])
            engine.commit([rid])
            engine.retract_with_backup(rid)
        engine.resume("r2", list(range(12)))
        engine.abort("r3")
    return open_run(tmp_path).path


def test_the_report_tells_the_host_apart(log, capsys):
    """It stands beside the pools, with a chart of its pages and their lives, and has no map."""
    _status, _told, page, content = reported(capsys, log)
    host = content["spaces"][-1]
    assert (host["name"], host["map"]) == ("the host", None)
    assert (host["uses"]["private"][-1], host["uses"]["free"][-1]) == (2, 5)
    # The 3 pages of r2 and the one of r3 have lived.
    assert sum(host["lifetimes"]["counts"]) == 4
    assert "the host 7 pages" in page


def test_top_counts_the_host(log, capsys):
    """Its pages stand below those of the page spaces."""
    main(["top", str(log), "--once", "--json"])
    (sight,) = json.loads(capsys.readouterr().out)["runs"]
    assert list(sight["pages"]) == ["full", "the host"]
    assert (sight["pages"]["the host"]["private"], sight["pages"]["the host"]["free"]) == (2, 5)


def test_a_timeline_counts_the_host(log, tmp_path, capsys):
    """A counter of PRIVATE host pages: 0, and after each change what is kept."""
    target = tmp_path / "run.json"
    main(["export", str(log), "--to", "chrome", "-o", str(target)])
    capsys.readouterr()
    counts = of_chrome(target).counts
    (track,) = [name for name in counts if name.endswith("the host: PRIVATE pages")]
    assert [value for _, value in counts[track]] == [0, 2, 5, 6, 3, 2]


@pytest.mark.parametrize(
    ("page", "at", "line", "touches"),
    [
        (1, None, "is PRIVATE: the backup of request r1 lies there since seq 4", [4]),
        (5, None, "is FREE: nobody owns it since seq 18 (step 0, Resumed)", [10, 18]),
        (5, 12, "is PRIVATE: the backup of request r2 lies there since seq 10", [10]),
        (6, None, "is FREE: nobody owns it since seq 21 (step 0, Released)", [16, 21]),
        (7, None, "is FREE, and was never in use up to seq 21", []),
    ],
)
def test_the_life_of_a_host_page(log, capsys, page, at, line, touches):
    """Pages 1 and 2 keep r1, 3 to 5 kept r2 from seq 10 to 18, 6 kept r3; nobody had page 7."""
    when = [] if at is None else ["--at", at]
    _, out, _ = made.ran(capsys, "page", log, page, "--host", *when)
    assert out.startswith(f"page {page} of the host {line}")
    for whole in ([], ["--all"]):
        _, told = made.answered(capsys, "page", log, page, "--host", *when, *whole)
        assert [touch["seq"] for touch in told["touches"]] == touches
        assert (told["space"], told["group"]) == ("the host", None)


def test_the_events_that_name_a_host_page(log, capsys):
    """r3's retraction and release name page 6; page 6 of the device was never anyone's."""
    _, out, _ = made.ran(capsys, "log", log, "--page", 6, "--host")
    assert [line.split()[0] for line in out.splitlines()] == ["16", "21"]
    _, out, _ = made.ran(capsys, "log", log, "--page", 6)
    assert not out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("page", 8, "--host"), "page 8 is out of range: page space the host has pages [1, 8)"),
        (("page", 0, "--host"), "page 0 is reserved"),
        (("page", 3, "--host", "--group", "full"), "belong to no cache group"),
        (("log", "--page", 9, "--host"), "page 9 is out of range"),
        (("log", "--host"), "--host says that --page is one of the host's"),
        (("log", "--page", 3, "--host", "--group", "full"), "no --group"),
    ],
)
def test_host_pages_that_are_none_are_refused(log, capsys, words, said):
    """A clear message and exit status 2."""
    status, _, err = made.ran(capsys, words[0], log, *words[1:])
    assert status == 2
    assert said in err


def test_a_log_without_a_host_has_no_host_pages(tmp_path, capsys):
    """The same, by its name."""
    made.crowded_engine(tmp_path, seed=1, num_steps=4)
    status, _, err = made.ran(capsys, "page", tmp_path, 3, "--host")
    assert (status, "no pages on the host" in err) == (2, True)


def test_a_violation_of_host_pages_points_to_one(log, tmp_path, capsys):
    """r3's release gives its one page back twice: the report says where to look."""
    fault = FAULTS["host-page-given-back-twice"]
    placed = write_faulty_run(open_run(log), fault, tmp_path / "faulty", seed=1)
    _, out, _ = made.ran(capsys, "replay", placed.path)
    assert f"kvlife page {placed.path} 6 --host" in out
    _, out, _ = made.ran(capsys, "page", placed.path, 6, "--host")
    assert "the backup of request r3 lies there since seq 16" in out
    assert "page-double-free" in out.splitlines()[-1]
