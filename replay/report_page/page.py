"""The page itself: text, tables, and the numbers for the charts, in one file without a network."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from string import Template

from kvlife import __version__
from kvlife.config import Layout
from kvlife.log import LogRun
from kvlife.replay.history.chain import explain
from kvlife.replay.history.next_commands import next_commands
from kvlife.replay.replaying.outcome import Outcome
from kvlife.replay.report_page import tables
from kvlife.replay.report_page.columns import HOST
from kvlife.replay.report_page.content import content_of
from kvlife.replay.report_page.watcher import MAX_MAPS, Watcher

SCRIPTS = ("format.js", "plot.js", "cursor.js", "charts.js", "heat_map.js", "start.js")


def page_of(run: LogRun, watcher: Watcher, outcome: Outcome) -> str:
    """The whole page of a replayed run; its first violation is looked into once more."""
    layout = run.layout
    content = content_of(watcher, outcome, layout)
    return Template(_asset("report.html")).substitute(
        title=tables.text(f"{run.path.name} · kvlife report"),
        style=_asset("report.css"),
        name=tables.text(run.path.name),
        facts=_facts(run),
        verdict=tables.verdict(outcome),
        violation=_violation(run, outcome),
        figures=tables.figures(watcher, outcome),
        pages=_per_space(layout, "pages"),
        maps=_per_space(layout, "map"),
        lives=_per_space(layout, "lives"),
        tenures=tables.tenures(watcher.tally.tenures.longest, watcher.axis.kind),
        remarks=tables.remarks(outcome),
        version=tables.text(__version__),
        content=embedded(content),
        script="\n".join(_asset(name) for name in SCRIPTS),
    )


def _violation(run: LogRun, outcome: Outcome) -> str:
    first = outcome.first
    if first is None:
        return ""
    return tables.violation(outcome, explain(run, first), next_commands(run, first))


def embedded(content: object) -> str:
    """JSON that cannot end the element it stands in, whatever the strings in it say."""
    plain = json.dumps(content, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        plain = plain.replace(letter, f"\\u{ord(letter):04x}")
    return plain


@lru_cache
def _asset(name: str) -> str:
    folder = resources.files("kvlife.replay.report_page")
    return (folder / "assets" / name).read_text(encoding="utf-8")


def _facts(run: LogRun) -> str:
    config, header = run.header.config, run.header
    pools = ", ".join(
        f"{tables.text(space.name)} {space.num_pages - 1:,} pages" for space in run.layout.spaces
    )
    if config.host_pages:
        pools += f", {HOST} {config.host_pages - 1:,} pages"
    facts = [pools, f"{config.page_size} tokens a page", f"{config.max_requests:,} rows"]
    if header.created_ns:
        made = datetime.fromtimestamp(header.created_ns / 1e9, UTC)
        facts.append(f"begun {made:%Y-%m-%d %H:%M} UTC")
    if header.world_size > 1:
        facts.append(f"rank {header.rank} of {header.world_size}")
    return " · ".join(facts)


def _per_space(layout: Layout, chart: str) -> str:
    """A place for a chart of each page space; its name stands above where there are several.

    The host has one as well, but no map: no row holds its pages.
    """
    largest = sorted(layout.spaces, key=lambda space: -space.num_pages)[:MAX_MAPS]
    shown = [(space.idx, space.name) for space in sorted(largest, key=lambda space: space.idx)]
    if layout.host_pages and chart != "map":
        shown.append((len(layout.spaces), HOST))
    return "".join(
        (f"<h3>{tables.text(name)}</h3>" if len(shown) > 1 else "")
        + f'<div class="chart" data-chart="{chart}" data-space="{idx}"></div>'
        for idx, name in shown
    )
