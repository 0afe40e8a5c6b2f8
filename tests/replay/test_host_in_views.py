"""The host's pages where a run is looked at as a whole: the report, top, a timeline."""

import json

import pytest
from reports import reported
from timelines import of_chrome

from kvlife import KvEngine, LogWriter, PoolConfig, open_run
from kvlife.replay.cli import main


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
