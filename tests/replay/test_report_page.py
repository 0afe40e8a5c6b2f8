"""`kvlife report`: what the page says of small runs whose every figure is known."""

import base64
import json
import re

import numpy as np
import pytest
import recorded_runs as made
from reports import reported

from kvlife import Checker, Ledger, LogWriter
from kvlife.errors import ConfigError
from kvlife.events import Evicted, Marked, Protected, Released, Retracted
from kvlife.ledger import PageSpace
from kvlife.log import open_run
from kvlife.replay.cli import main
from kvlife.replay.report_page import axis_of
from kvlife.replay.report_page.histogram import Histogram
from kvlife.replay.report_page.page import embedded
from kvlife.replay.report_page.page_lives import HIT, LET_GO, TAKEN, PageLives
from kvlife.replay.report_page.words import duration

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def keys(*values):
    array = np.array(values, np.uint64)
    array.setflags(write=False)
    return array


# What the pool of 31 pages holds behind each event is written beside it.
CACHED_LIFE = [
    [made.admitted("r1", 1)],  # 0: a row
    [made.allocated([1], [8], [1, 2])],  # 1: 2 private
    [made.committed([1], [8])],  # 2
    [Protected(1, 8, (keys(7, 8),), np.zeros((0, 4), np.int32))],  # 3: 2 cached in use
    [made.released("r1", 1, [1, 2])],  # 4: 2 cached, evictable
    [made.admitted("r2", 2, prompt_len=12)],  # 5
    [made.allocated([2], [4], [3])],  # 6: and 1 private
    [Retracted("r2", 2, None, (made.ints(3),))],  # 7: 3 is free, r2 waits
    [Evicted("pressure", (made.ints(2, 1),))],  # 8: all free
    [Marked("all gone", idle=False)],  # 9
]


def test_each_state_over_the_events(tmp_path, capsys):
    """Where the clock stands still, each event has a column, and the states are those by hand."""
    made.observe(tmp_path / "log", CACHED_LIFE)
    status, summary, _, content = reported(capsys, tmp_path / "log")
    assert status == 0
    assert summary["events"] == 10
    assert content["axis"] == {"kind": "events", "start": 0, "stop": 10, "columns": 10}
    uses = content["spaces"][0]["uses"]
    assert uses["private"] == [0, 0, 2, 2, 0, 0, 0, 1, 0, 0, 0]
    assert uses["cached_used"] == [0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]
    assert uses["cached_idle"] == [0, 0, 0, 0, 0, 2, 2, 2, 2, 0, 0]
    assert uses["quarantined"] == [0] * 11
    assert uses["free"] == [31, 31, 29, 29, 29, 29, 29, 28, 29, 31, 31]
    levels = content["levels"]
    assert levels["next_seq"] == list(range(11))
    assert levels["running"] == [0, 1, 1, 1, 1, 0, 1, 1, 0, 0, 0]
    assert levels["waiting"] == [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]
    assert levels["allocated_tokens"] == [0, 0, 8, 8, 8, 0, 0, 4, 0, 0, 0]
    assert levels["committed_tokens"] == [0, 0, 0, 8, 8, 0, 0, 0, 0, 0, 0]


def test_each_event_is_counted_in_its_column(tmp_path, capsys):
    """Admissions, ends, retractions, evicted pages, tokens and notes stand where they are."""
    made.observe(tmp_path / "log", CACHED_LIFE)
    _, _, page, content = reported(capsys, tmp_path / "log")
    counts = content["counts"]
    assert counts["admitted"] == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert counts["finished"] == [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    assert counts["retracted"] == [0, 0, 0, 0, 0, 0, 0, 1, 0, 0]
    assert counts["evicted_pages"] == [0, 0, 0, 0, 0, 0, 0, 0, 2, 0]
    assert counts["prompt_tokens"] == [8, 0, 0, 0, 0, 12, 0, 0, 0, 0]
    assert sum(counts["hit_tokens"]) == 0
    assert content["notes"] == [[9, 9, "all gone"]]
    assert "of 20 prompt tokens" in page
    # Pages 1 and 2 lived from seq 1 to 8, page 3 from seq 6 to 7.
    lifetimes = content["spaces"][0]["lifetimes"]
    assert (lifetimes["total"], lifetimes["longest"]) == (3, 7)
    assert content["spaces"][0]["reuse_gaps"]["total"] == 0


def test_the_map_shows_who_holds_each_page(tmp_path, capsys):
    """With a band for each page, a cell is the page's holder, or its state where it has none."""
    made.observe(tmp_path / "log", CACHED_LIFE)
    _, _, _, content = reported(capsys, tmp_path / "log")
    drawn = content["spaces"][0]["map"]
    assert (drawn["bands"], drawn["columns"], drawn["pages_per_band"]) == (32, 10, 1)
    cells = np.frombuffer(base64.b64decode(drawn["cells"]), "<u2").reshape(32, 10)
    assert content["holders"] == ["request r1", "request r2"]
    free, cached, first, second = 0, 1, 4, 5
    assert cells[1].tolist() == [free, *[first] * 3, *[cached] * 4, free, free]
    assert cells[3].tolist() == [*[free] * 6, second, free, free, free]
    assert not cells[4:].any()
    assert not cells[0].any()


def test_the_longest_holders_are_listed(tmp_path, capsys):
    """A request's time on its row, how it ended, and the most pages that it had."""
    made.observe(tmp_path / "log", [*CACHED_LIFE, [made.admitted("r3", 3)]])
    _, _, page, content = reported(capsys, tmp_path / "log")
    rows = re.findall(r"<tr>(<td.*?)</tr>", page)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
    assert ["4 events", "request r1", "1", "0", "finished", "2"] in cells
    assert ["2 events", "request r2", "2", "5", "retracted", "1"] in cells
    assert ["0 events", "request r3", "3", "10", "<b>still held</b>", "0"] in cells
    assert content["stays"]["total"] == 2


def test_time_is_the_axis_where_it_goes_on(tmp_path, capsys):
    """Events 0.1 s apart span 0.3 s; a state lasts until the next event, also over idle columns."""
    ticks = iter(range(0, 10**12, 10**8))
    writer = LogWriter(tmp_path / "log")
    observer = made.Observer(made.CONFIG, log=writer, clock=lambda: next(ticks))
    for fact in made.life_of("r1", 1, [1, 2]):
        observer.observe(fact)
    observer.close()
    _, _, page, content = reported(capsys, tmp_path / "log")
    axis = content["axis"]
    assert axis["kind"] == "time"
    assert axis["stop"] - axis["start"] == 3 * 10**8 + 1
    private = content["spaces"][0]["uses"]["private"]
    third = axis["columns"] // 3
    assert private[third - 1] == 0
    assert set(private[third + 2 : 3 * third - 1]) == {2}
    assert private[-1] == 0
    assert "in 300 ms" in page
    _, _, _, by_events = reported(capsys, tmp_path / "log", "--axis", "events")
    assert by_events["axis"]["kind"] == "events"


def test_the_first_violation_is_explained(tmp_path, capsys):
    """The verdict, the rule, the evidence, the chain and where to look next stand on the page."""
    groups = [*CACHED_LIFE[:2], [made.admitted("r2", 2)], [made.allocated([2], [4], [1])]]
    made.observe(tmp_path / "log", groups)
    status, summary, page, content = reported(capsys, tmp_path / "log")
    assert status == 1
    assert summary["first"] == {"id": "page-double-alloc", "seq": 3}
    assert "<code>page-double-alloc</code> is broken" in page
    assert "an allocated page was FREE, and stands once in the event" in page
    assert "FREE -&gt; PRIVATE, refs 0 -&gt; 1, page 0 of row 1 (request r1)" in page
    assert re.search(r"kvlife page \S+ 1 ", page)
    assert content["violations"] == [[3, 3, "page-double-alloc", "Allocated"]]


def test_a_lost_page_shows_in_the_map(tmp_path, capsys):
    """A page that a release forgets is PRIVATE and in no table: an orphan, up to the end."""
    forgets = [*CACHED_LIFE[:3], [Released("r1", 1, "finished", (made.ints(1),), made.ints())]]
    forgets += [[made.admitted("r2", 2)]]
    made.observe(tmp_path / "log", forgets, checker=Checker(policy="collect"))
    status, _, page, content = reported(capsys, tmp_path / "log")
    assert status == 1
    drawn = content["spaces"][0]["map"]
    cells = np.frombuffer(base64.b64decode(drawn["cells"]), "<u2").reshape(drawn["bands"], -1)
    assert cells[2].tolist() == [0, 4, 4, 3, 3]
    assert "refs-balance" in page


def test_nothing_in_an_id_or_note_becomes_markup(tmp_path, capsys):
    """A request id, a note and a group name that are HTML stay text in both of their places."""
    rid, note = f"{EVIL}1", f"{EVIL}2"
    made.observe(tmp_path / "log", [made.life_of(rid, 1, [1, 2]), [Marked(note, idle=False)]])
    _, _, page, content = reported(capsys, tmp_path / "log")
    assert EVIL not in page
    assert page.count("<script") == 2
    assert content["notes"][0][2] == note
    assert "&lt;img src=x onerror=alert(2)&gt;1" in page


def test_embedded_json_holds_no_letter_that_html_reads():
    """What is embedded reads back as it was, and neither ends its element nor opens another."""
    said = {"a": "</script><!-- & \u2028 \ud800"}
    text = embedded(said)
    assert json.loads(text) == said
    assert not set("<>&\u2028") & set(text)


def test_nothing_checked_is_said(tmp_path, capsys):
    """Under --check off the verdict is not that there is no violation."""
    made.observe(tmp_path / "log", CACHED_LIFE)
    status, summary, page, _ = reported(capsys, tmp_path / "log", "--check", "off")
    assert status == 0
    assert summary["checked"] == 0
    assert "Nothing was checked" in page
    assert "No violation" not in page


def test_what_is_missing_is_said(tmp_path, capsys):
    """A run that was killed says so, and that refusals stand in no log."""
    observer = made.observe(tmp_path / "live", CACHED_LIFE, close=False)
    log = made.copy_of_unclosed(observer.log, tmp_path / "live", tmp_path / "left")
    observer.close()
    _, _, page, _ = reported(capsys, log)
    assert "end is not here: its process was killed" in page
    assert "Refused commands leave no event" in page


def test_an_empty_run_has_a_page(tmp_path, capsys):
    """A run without an event is shown as such."""
    made.observe(tmp_path / "log", [])
    status, summary, _, content = reported(capsys, tmp_path / "log")
    assert status == 0
    assert summary["events"] == 0
    assert content["spaces"][0]["uses"]["free"] == [31, 31]


def test_a_crowded_run_adds_up(tmp_path, capsys):
    """At each border the uses of the pages make up the pool, and the end is the ledger's."""
    engine = made.crowded_engine(tmp_path / "log", seed=11, close=False)
    pages, rows = engine.stats().pages["full"], engine.stats().requests
    stats = engine.stats()
    engine.close()
    _, _, _, content = reported(capsys, tmp_path / "log")
    uses = content["spaces"][0]["uses"]
    assert {sum(column) for column in zip(*uses.values(), strict=True)} == {95}
    assert uses["free"][-1] == pages["FREE"]
    assert content["levels"]["running"][-1] == rows
    counts = {name: sum(column) for name, column in content["counts"].items()}
    assert counts["admitted"] == stats.admissions
    assert counts["finished"] == stats.finished
    assert counts["aborted"] == stats.aborts
    assert counts["evicted_pages"] == stats.evicted_pages
    assert (counts["prompt_tokens"], counts["hit_tokens"]) == (
        stats.prompt_tokens,
        stats.hit_tokens,
    )


@pytest.mark.parametrize(
    ("output", "said"),
    [(".", "is a folder"), ("no/page.html", "there is no folder"), ("log/run-000001/x", "run's")],
)
def test_where_the_page_cannot_be(tmp_path, capsys, monkeypatch, output, said):
    """A target that is a folder, lies in none, or in a run, is refused before any work."""
    monkeypatch.chdir(tmp_path)
    made.observe(tmp_path / "log", CACHED_LIFE)
    before = sorted(tmp_path.rglob("*"))
    assert main(["report", "log", "-o", output]) == 2
    assert said in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_an_axis_that_cannot_be(tmp_path):
    """A clock that stood still gives no axis of time, and other words are no axis."""
    made.observe(tmp_path, CACHED_LIFE)
    run = open_run(tmp_path)
    with pytest.raises(ConfigError, match="did not go forward"):
        axis_of(run, 0, "time")
    with pytest.raises(ConfigError, match="there are time, events"):
        axis_of(run, 0, "seqs")


def test_lives_and_gaps_of_pages():
    """Taken at 10 and let go at 14: a life of 4. Touched at 10 and hit at 25: a gap of 15."""
    lives = PageLives(4)
    lives.touch(TAKEN, made.ints(1, 2), 10)
    lives.touch(LET_GO, made.ints(1), 14)
    lives.touch(TAKEN, made.ints(1), 20)
    lives.touch(HIT, made.ints(2), 25)
    lives.touch(LET_GO, made.ints(2), 26)
    space = PageSpace.create(4, fifo=False)
    space.state[1] = 1  # PRIVATE: it still lives
    lives.finish(space)
    assert lives.reuse_gaps.total == 1
    assert lives.reuse_gaps.longest == 15
    assert lives.lifetimes.total == 2  # page 1 up to its second taking, page 2 from 10 to 26
    assert lives.lifetimes.longest == 16


def test_lives_do_not_depend_on_the_chunks(seed, monkeypatch):
    """However touches are gathered, lives and gaps are those of one look at a time."""
    random = np.random.default_rng(seed)
    histograms = []
    touches = [
        (int(random.integers(3)), random.permutation(20)[: random.integers(1, 6)].astype(np.int32))
        for _ in range(500)
    ]
    for chunk in (1, 37, 1 << 16):
        monkeypatch.setattr("kvlife.replay.report_page.page_lives._CHUNK", chunk)
        lives = PageLives(4)
        for place, (kind, pages) in enumerate(touches):
            lives.touch(kind, pages, 3 * place)
        lives.finish(PageSpace.create(20, fifo=False))
        histograms.append((lives.lifetimes.as_json(), lives.reuse_gaps.as_json()))
    assert histograms[0] == histograms[1] == histograms[2]
    assert histograms[0][0]["total"] > 100


def test_a_histogram_has_five_bins_a_decade():
    """1 and 9 lie in the first decade, 10 begins the second, and 0 is counted apart."""
    histogram = Histogram()
    histogram.add(np.array([0, 1, 9, 10, 10], np.int64))
    found = histogram.as_json()
    assert found["zero"] == 1
    assert found["first"] == 0
    assert found["counts"] == [1, 0, 0, 0, 1, 2]
    assert (found["total"], found["longest"]) == (5, 10)
    # Half of five: 2.5, of which one is 0 and one the 1; half the 9's bin, of [6.3, 10).
    assert found["median"] == pytest.approx(10**0.9)


@pytest.mark.parametrize(
    ("ns", "words"),
    [(0, "0 ns"), (1_500, "1.50 µs"), (90_000_000_000, "1.50 min"), (25_000_000, "25.0 ms")],
)
def test_durations_in_words(ns, words):
    """Three digits, in the largest unit of which there is one."""
    assert duration(ns) == words


def test_a_report_leaves_the_ledger_as_a_replay_does(tmp_path, capsys):
    """Looking on changes nothing: the digest at the end is the recorded one."""
    made.crowded_engine(tmp_path / "log", seed=2)
    status, summary, _, _ = reported(capsys, tmp_path / "log")
    assert status == 0
    assert summary["differences"] == 0
    run = open_run(tmp_path / "log")
    ledger = Ledger(run.header.config)
    for item in run.events():
        ledger.apply(item.event, item.seq, item.time_ns)
    assert run.closed.digest == ledger.digest()


def test_no_control_character_stands_on_the_page(tmp_path, capsys):
    """Ids and notes are shown in escapes, as on a terminal; the request ends twice."""
    odd = "r\x00\x1b[31m\u202e\x85"
    life = made.life_of(odd, 1, [1, 2])
    again = made.released(odd, 1, [1, 2])
    made.observe(tmp_path / "log", [*([e] for e in life), [Marked(odd, idle=False)], [again]])
    status, _, page, content = reported(capsys, tmp_path / "log")
    assert status == 1
    assert {sign for sign in page if not sign.isprintable()} == {"\n"}
    shown = r"r\x00\x1b[31m\u202e\x85"
    assert content["notes"][0][2] == shown
    assert any(shown in name for name in content["holders"])
