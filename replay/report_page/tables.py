"""The parts of a report that are text: the verdict, figures, tables. All of it is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from kvlife.replay.history.chain import Chain
from kvlife.replay.output.columns import counted
from kvlife.replay.output.quoting import printable
from kvlife.replay.replaying.outcome import Found, Outcome
from kvlife.replay.report_page.columns import Count, Level, PageUse
from kvlife.replay.report_page.tenures import Tenure
from kvlife.replay.report_page.watcher import Watcher
from kvlife.replay.report_page.words import share, span

MAX_LISTED = 50
MAX_TEXT = 400


def text(value: object) -> str:
    """Any value as text that is safe in HTML, a list by its items, cut where it is long.

    What no terminal should be sent is an escape here too.
    """
    plain = str(value)
    if isinstance(value, list | tuple):
        plain = ", ".join(map(str, value))
    plain = printable(plain)
    return escape(plain if len(plain) <= MAX_TEXT else f"{plain[: MAX_TEXT - 1]}…")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numeric: str) -> str:
    """A table of escaped cells; `numeric` has an "n" for each column of numbers, else "t".

    Each cell carries its column's head, which a narrow screen shows in front of it.
    """
    kinds = ["num" if letter == "n" else "txt" for letter in numeric]
    head = "".join(
        f'<th class="{kind}" scope="col">{name}</th>'
        for kind, name in zip(kinds, heads, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kind}" data-head="{name}">{cell}</td>'
            for kind, name, cell in zip(kinds, heads, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def verdict(outcome: Outcome) -> str:
    """The one sentence that the report begins with."""
    if outcome.first is not None:
        total = sum(outcome.num_found.values())
        more = "" if total == 1 else f", and {total - 1:,} more behind it"
        return _banner("bad", f"<code>{text(outcome.first.id)}</code> is broken", (
            f"{_at(outcome.first)}{more}. The rule: {text(outcome.first.sentence)}."
        ))  # fmt: skip
    if outcome.differences:
        lines = "; ".join(text(difference.text) for difference in outcome.differences[:3])
        return _banner("bad", "The replay differs from the log", lines)
    checked = outcome.checked
    if not checked.events and not checked.audits:
        return _banner("unsure", "Nothing was checked", "The charts show the log as it stands.")
    return _banner(
        "good",
        "No violation",
        f"{counted(checked.events, 'event')}, {counted(checked.rows, 'row')} and"
        f" {counted(checked.pages, 'page')} were checked, and {counted(checked.audits, 'audit')}"
        " made.",
    )


def _banner(kind: str, head: str, rest: str) -> str:
    return f'<section class="verdict {kind}"><h2>{head}</h2><p>{rest}</p></section>'


def _at(found: Found) -> str:
    by = "an audit" if found.event is None else f"<code>{text(found.event)}</code>"
    return f"By {by} at seq {found.seq:,}, step {found.step:,}"


def violation(outcome: Outcome, chain: Chain, commands: Sequence[str]) -> str:
    """How the first violation came about, its evidence, where to look next, and the later ones."""
    first = outcome.first
    assert first is not None  # the caller looked
    parts = ["<h2>How it came about</h2>", _chain(chain)]
    evidence = ((text(name), text(value)) for name, value in first.evidence.items())
    parts.append("<h3>Evidence</h3>" + table(("what", "value"), evidence, "tt"))
    if first.also:
        names = ", ".join(f"<code>{text(name)}</code>" for name in first.also)
        parts.append(f"<p>The same event breaks {names} too.</p>")
    lines = "\n".join(escape(line) for line in commands)
    parts.append(f"<h3>To see more</h3><pre>{lines}</pre>")
    later = outcome.found[1 : 1 + MAX_LISTED]
    if later:
        rows = (
            (text(item.id), text(item.event or "an audit"), f"{item.seq:,}", f"{item.step:,}")
            for item in later
        )
        listed = table(("broken", "event", "seq", "step"), rows, "ttnn")
        parts.append(
            f"<h3>Violations in all</h3><p>{_tallied(outcome)}.</p>"
            f"<details><summary>The {len(later)} after the first</summary>{listed}</details>"
        )
    return f'<section class="violation">{"".join(parts)}</section>'


def _tallied(outcome: Outcome) -> str:
    return ", ".join(
        f"<code>{text(name)}</code> {num:,} time{'' if num == 1 else 's'}"
        for name, num in outcome.num_found.items()
    )


def _chain(chain: Chain) -> str:
    lines = "".join(
        f'<li><p class="when">seq {link.seq:,} · step {link.step:,}</p>'
        f"<p><b>{text(link.event)}</b> <span>{text(link.where)}</span></p>"
        f'<p class="what">{text(link.text)}</p></li>'
        for link in chain.links
    )
    gone = "" if chain.complete else "<p>What lies before is not in the log, or too far back.</p>"
    return f'{gone}<ol class="chain">{lines}</ol>'


def figures(watcher: Watcher, outcome: Outcome) -> str:
    """The numbers of the whole run."""
    counts = watcher.columns.counts.sum(axis=1).tolist()
    levels, stop = watcher.columns.levels, watcher.reached + 1
    axis = watcher.axis
    length = watcher.tally.place - axis.start
    items = [
        ("events", f"{outcome.num_events:,}", _length_of(axis.kind, length)),
        ("pages in use, at most", _peak(watcher), "of the largest page space"),
        ("hit rate", share(counts[Count.HIT_TOKENS], counts[Count.PROMPT_TOKENS]),
         f"of {counts[Count.PROMPT_TOKENS]:,} prompt tokens"),
        ("requests admitted", f"{counts[Count.ADMITTED]:,}",
         f"{counts[Count.FINISHED]:,} finished, {counts[Count.ABORTED]:,} aborted"),
        ("running at once, at most", f"{int(levels[Level.RUNNING, :stop].max()):,}",
         f"{int(levels[Level.WAITING, :stop].max()):,} waiting, at most"),
        ("retractions", f"{counts[Count.RETRACTED]:,}", f"{counts[Count.RESUMED]:,} resumed"),
        ("pages evicted", f"{counts[Count.EVICTED_PAGES]:,}", ""),
        ("violations", f"{sum(outcome.num_found.values()):,}", ""),
    ]  # fmt: skip
    cells = "".join(
        f"<div><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>"
        for name, value, note in items
    )
    return f'<dl class="figures">{cells}</dl>'


def _length_of(kind: str, length: int) -> str:
    return f"in {span(length, kind)}" if kind == "time" else ""


def _peak(watcher: Watcher) -> str:
    pages = max(watcher.columns.pages, key=lambda noted: int(noted[:, 0].sum()))
    pages = pages[:, : watcher.reached + 1]
    used = pages.sum(axis=0) - pages[PageUse.FREE] - pages[PageUse.CACHED_IDLE]
    return share(int(used.max()), int(pages[:, used.argmax()].sum()))


def tenures(longest: Sequence[Tenure], kind: str) -> str:
    """Who held a row longest."""
    heads = ("held", "holder", "row", "since seq", "ended", "pages")
    rows = (
        (
            span(item.duration, kind),
            text(item.holder),
            f"{item.row:,}",
            "before the log" if item.since is None else f"{item.since:,}",
            "<b>still held</b>" if item.ended is None else text(item.ended),
            f"{item.peak_pages:,}",
        )
        for item in longest
    )
    return table(heads, rows, "ntnntn")


def remarks(outcome: Outcome) -> str:
    """What is missing, what was not checked, and what no log can show."""
    lines = [
        "Refused commands leave no event, so no log shows them: the engine's stats() counts them.",
    ]
    if outcome.unclosed:
        lines.append(f"{outcome.unclosed[0].upper()}{outcome.unclosed[1:]}.")
    lines += [
        f"Seqs {hole.first_seq:,} to {hole.next_seq - 1:,} were not replayed: {hole.why}"
        for hole in outcome.holes
    ]
    if outcome.lost:
        lines.append(f"Nothing from seq {outcome.next_seq:,} on was replayed: {outcome.lost}")
    lines += [*outcome.notes, *(f"Not checked: {line}" for line in outcome.names_off)]
    items = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f'<ul class="remarks">{items}</ul>'
