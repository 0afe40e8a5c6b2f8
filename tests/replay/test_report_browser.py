"""The page of `kvlife report` in a headless Chromium: it is drawn, and says nothing to the console.

Where no Chromium is installed these tests skip, unless KVLIFE_BROWSER=required.
"""

import os

import pytest
import recorded_runs as made
from browser import chromium, find_chromium
from test_report_page import CACHED_LIFE, EVIL

from kvlife import CacheGroup
from kvlife.events import Marked
from kvlife.replay.cli import main

SIZES = [(1280, False), (1280, True), (390, False), (390, True)]
# How many colours a picture has of which the background is one, and which part of it is drawn on.
COLOURS_OF = """(canvas) => {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const seen = new Set();
    let drawn = 0;
    for (let at = 0; at < pixels.length; at += 4) {
        if (pixels[at + 3]) drawn += 1;
        seen.add(pixels.slice(at, at + 4).join());
    }
    return [seen.size, (4 * drawn) / pixels.length];
}"""
# Per chart: its name, and the largest part of its width that one of its shapes takes.
SHAPES = """[...document.querySelectorAll("[data-chart]")].map((chart) => [chart.dataset.chart,
    Math.max(...[...chart.querySelectorAll("svg path, svg rect")].map((shape) =>
        shape.getBoundingClientRect().width * shape.getBoundingClientRect().height > 0
            ? shape.getBoundingClientRect().width / chart.clientWidth : 0), 0)])"""
# An expression's value once the browser has painted what was changed before.
SOON = """new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>
    done({}))))"""


@pytest.fixture(scope="module")
def page():
    """A page of a browser, for all tests of this module."""
    path = find_chromium()
    if path is None:
        said = "no Chromium: apt-get install chromium-headless-shell, or name one: KVLIFE_CHROMIUM"
        if os.environ.get("KVLIFE_BROWSER") == "required":
            pytest.fail(said)
        pytest.skip(said)
    with chromium(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """The report of a crowded run with two page spaces."""
    folder = tmp_path_factory.mktemp("crowded")
    groups = (CacheGroup("full"), CacheGroup("window", window=32, num_pages=64))
    made.crowded_engine(folder / "log", seed=4, groups=groups)
    return report_of(folder / "log")


def report_of(log):
    """Write the report of a log beside it, and return its path."""
    target = log.parent / f"{log.name}.html"
    assert main(["report", str(log), "-o", str(target)]) in (0, 1)
    return target


def opened(page, target, *, width=1280, dark=False):
    """Open a report, and return the list of what troubles the browser with it."""
    page.troubles.clear()
    page.look(width=width, dark=dark)
    page.open(target)
    return page.troubles


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_every_chart_is_drawn(page, crowded, width, dark):
    """At both widths and in both schemes: no trouble, no chart without shapes, nothing too wide."""
    assert opened(page, crowded, width=width, dark=dark) == []
    shapes = page.value(SHAPES)
    names = [name for name, _ in shapes]
    assert names.count("pages") == names.count("lives") == 2
    assert {"requests", "tokens", "lanes", "hits", "stays", "map"} <= set(names)
    # A histogram's bars are narrow, and a map's picture is on its canvas.
    narrow = {"lives": 0.02, "stays": 0.02, "map": 0}
    assert [name for name, part in shapes if part < narrow.get(name, 0.5)] == []
    canvases = page.value(f"[...document.querySelectorAll('canvas')].map({COLOURS_OF})")
    assert len(canvases) == 2
    assert all(num_colours > 10 and drawn > 0.95 for num_colours, drawn in canvases)
    assert page.value("document.documentElement.scrollWidth") == width
    assert page.troubles == []


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_the_text_is_there_and_can_be_read(page, crowded, width, dark):
    """Headings, figures and tables are visible, and no letter is smaller than 12 pixels."""
    opened(page, crowded, width=width, dark=dark)
    text = page.value("document.body.innerText")
    for said in ("No violation", "Pages by state", "Who holds what", "Longest holders", "hit rate"):
        assert said in text
    assert "request r" in text
    sizes = page.value(
        "[...document.querySelectorAll('p,td,dt,dd,li,text')].map((e) =>"
        " parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 12
    background = page.value("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(20, 23, 26)") == dark


def test_the_largest_page_opens_within_three_seconds(page, tmp_path, monkeypatch):
    """Whatever the log, a page has at most 600 columns, 200 bands and names of 80 letters."""
    monkeypatch.setattr("kvlife.replay.report_page.axis.MIN_COLUMNS", 600)
    config = made.PoolConfig(page_size=4, num_pages=65_536, max_requests=50, max_context_len=6_400)
    facts = []
    for number in range(200):
        row = 1 + number % 40
        pages = range(1 + 1_600 * (row - 1), 1 + 1_600 * row)
        if number >= 40:
            facts.append([made.released(name_of(number - 40), row, pages)])
        facts.append([made.admitted(name_of(number), row, prompt_len=6_400)])
        facts.append([made.allocated([row], [6_400], pages)])
        facts.append([made.committed([row], [6_400])])
    made.observe(tmp_path / "log", facts, config=config)
    target = report_of(tmp_path / "log")
    assert target.stat().st_size < 2_000_000
    assert opened(page, target) == []
    assert page.value("content.axis.columns") == 600
    assert page.value("content.spaces[0].map.bands") > 190
    assert float(page.value("document.documentElement.dataset.drawn")) < 3_000


def name_of(number):
    """A request id that is longer than a report shows."""
    return f"{number:03}-{'x' * 100}"


def test_the_scheme_may_change_while_the_page_is_open(page, crowded):
    """The pictures are drawn anew in the colours of the other scheme."""
    opened(page, crowded)
    read = "document.querySelector('canvas').toDataURL()"
    light = page.value(read)
    page.look(width=1280, dark=True)
    assert page.value(SOON.format(read)) != light


def test_a_narrower_window_is_drawn_anew(page, crowded):
    """After the window was made narrow, each chart fits it."""
    opened(page, crowded)
    page.look(width=390)
    edges = "[...document.querySelectorAll('svg')].map((svg) => svg.getBoundingClientRect().right)"
    assert max(page.value(SOON.format(edges))) <= 390


@pytest.mark.parametrize("chart", ["pages", "tokens", "lanes", "hits", "map"])
def test_pointing_at_a_chart_tells_what_is_there(page, crowded, chart):
    """The tip names the seq and has figures, the line stands at the same place in every chart."""
    opened(page, crowded)
    x, y = page.value(
        f"(() => {{ const chart = document.querySelector('[data-chart={chart}]');"
        "chart.scrollIntoView({block: 'center'});"
        "const box = chart.getBoundingClientRect();"
        "return [box.left + box.width / 2, box.top + box.height / 2]; })()"
    )
    page.point_at(x, y)
    assert not page.value("document.getElementById('tip').hidden")
    assert "seq " in page.value("document.getElementById('tip').innerText")
    lines = page.value(
        "[...document.querySelectorAll('.cursor')].map((line) => line.getAttribute('visibility'))"
    )
    assert set(lines) == {"visible"}
    page.point_at(0, 0)
    assert page.value("document.getElementById('tip').hidden")
    assert page.troubles == []


def test_the_keyboard_moves_along_a_chart(page, crowded):
    """An arrow key on a chart shows the tip, as pointing does."""
    opened(page, crowded)
    page.value("document.querySelector('[data-chart=pages]').focus()")
    page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft")
    assert "seq " in page.value("document.getElementById('tip').innerText")


def test_a_violation_is_marked_in_the_charts(page, tmp_path):
    """The faulty event has a line in each chart over time, and its name on the first."""
    groups = [*CACHED_LIFE[:2], [made.admitted("r2", 2)], [made.allocated([2], [4], [1])]]
    made.observe(tmp_path / "log", groups)
    assert opened(page, report_of(tmp_path / "log")) == []
    marked = page.value(
        "[...document.querySelectorAll('[data-chart]')].filter((chart) =>"
        " chart.querySelector('line.violation')).map((chart) => chart.dataset.chart)"
    )
    assert marked == ["pages", "requests", "tokens", "hits", "map"]
    assert page.value("document.querySelector('text.broken').textContent") == "page-double-alloc"
    assert "page-double-alloc is broken" in page.value("document.body.innerText")


def test_what_an_id_says_is_shown_and_not_done(page, tmp_path):
    """An id, a note and a group that are HTML add no element, run nothing, and are shown whole."""
    rid = f"{EVIL}r"
    facts = [made.life_of(rid, 1, [1, 2]), [Marked(EVIL, idle=False)], [made.admitted(rid, 2)]]
    config = made.PoolConfig(
        page_size=4,
        num_pages=32,
        max_requests=4,
        max_context_len=64,
        groups=(CacheGroup(f"<b>{EVIL}"),),
    )
    made.observe(tmp_path / "log", facts, config=config)
    page.call("Page.addScriptToEvaluateOnNewDocument", source="window.alert = () => { throw 1; }")
    assert opened(page, report_of(tmp_path / "log")) == []
    assert page.value("document.querySelectorAll('img').length") == 0
    assert page.value("document.scripts.length") == 2
    assert rid[:40] in page.value("document.body.innerText")


def test_an_empty_run_is_shown_without_trouble(page, tmp_path):
    """A page without one event has its charts, with nothing in them."""
    made.observe(tmp_path / "log", [])
    assert opened(page, report_of(tmp_path / "log")) == []
    assert page.value("document.querySelectorAll('[data-chart] svg').length") > 4
