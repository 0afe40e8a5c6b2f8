"""A frame of `kvlife top`: each run as a few lines, with a bar for the pages of each space."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from kvlife.replay.output.columns import counted
from kvlife.replay.watching.top_run import Sight

BAR_WIDTH = 40
_LABEL_WIDTH = 10
# Letters of their own, so that a bar can be read without its colours.
_USES = (
    ("private", "█", "blue", "private"),
    ("cached_used", "▓", "cyan", "cached in use"),
    ("cached_idle", "▒", "green", "evictable"),
    ("quarantined", "x", "yellow", "quarantined"),
    ("free", "·", "dim", "free"),
)
_STATUS_STYLES = {
    "live": "bold green",
    "closed": "bold",
    "ended": "bold red",
    "left": "bold yellow",
}
_STATUS_WORDS = {
    "live": "live",
    "closed": "closed",
    "ended": "ended by a violation",
    "left": "not closed, and no writer",
}


def frame(sights: Sequence[Sight], waiting_for: str = "") -> RenderableType:
    """The runs below each other, the newest first."""
    if not sights:
        return Text(waiting_for)
    parts: list[RenderableType] = []
    for sight in sights:
        if parts:
            parts.append(Rule(style="dim"))
        parts.extend(_lines(sight))
    return Group(*parts)


def _lines(sight: Sight) -> Iterator[Text]:
    head = Text(sight.run, style="bold")
    head.append(f"  {_STATUS_WORDS[sight.status]}", style=_STATUS_STYLES[sight.status])
    rate = "" if sight.events_per_second is None else f"  {sight.events_per_second:,.0f} events/s"
    head.append(f"  seq {sight.seq:,}{rate}  log {_megabytes(sight.log_bytes)}")
    if sight.behind and not sight.trouble:
        head.append("  catching up", style="yellow")
    yield head
    for space, uses in sight.pages.items():
        yield _bar(space, uses)
        yield _labelled("", "  ".join(_page_counts(uses)), style="dim")
    yield _labelled("rows", ", ".join(_rows(sight)))
    yield _labelled("since", ", ".join(_counts(sight)))
    yield _checks(sight)
    if sight.trouble:
        yield _labelled("stopped", sight.trouble, style="bold red")


def _labelled(label: str, text: str, style: str = "") -> Text:
    line = Text(f"  {label[:_LABEL_WIDTH]:<{_LABEL_WIDTH}} ", style="dim")
    line.append(text, style=style)
    return line


def _bar(space: str, uses: dict[str, int]) -> Text:
    total = sum(uses.values())
    line = _labelled(space, "")
    for (_, letter, style, _), cells in zip(_USES, bar_cells(uses), strict=True):
        line.append(letter * cells, style=style)
    in_use = total - uses["free"] - uses["cached_idle"]
    line.append(f" {100 * in_use / total if total else 0:5.1f} % in use of {total:,} pages")
    return line


def bar_cells(uses: dict[str, int]) -> list[int]:
    """The cells of a bar for each use: in proportion, and at least one of what there is."""
    numbers = [uses[use] for use, *_ in _USES]
    total = max(sum(numbers), 1)
    cells = [max(round(BAR_WIDTH * number / total), number > 0) for number in numbers]
    while sum(cells) != BAR_WIDTH and any(numbers):
        widest = max(range(len(cells)), key=cells.__getitem__)
        cells[widest] += 1 if sum(cells) < BAR_WIDTH else -1
    return cells


def _page_counts(uses: dict[str, int]) -> Iterable[str]:
    for use, letter, _, name in _USES:
        if uses[use] or use in ("private", "free"):
            yield f"{letter} {name} {uses[use]:,}"


def _rows(sight: Sight) -> Iterator[str]:
    yield f"{sight.rows_held:,} of {sight.rows:,} held"
    if sight.rows_draining:
        yield f"{sight.rows_draining:,} draining"
    for number, noun, more in (
        (sight.requests, "request", ""),
        (sight.waiting, "request", " retracted and waiting"),
        (sight.sessions, "session", ""),
        (sight.pins, "pin", ""),
        (sight.steps_in_flight, "step", " in flight"),
    ):
        if number:
            yield f"{number:,} {noun}{'' if number == 1 else 's'}{more}"


def _counts(sight: Sight) -> Iterator[str]:
    yield f"seq {sight.since_seq:,}: {sight.admitted:,} admitted"
    yield f"{sight.finished:,} finished"
    if sight.aborted:
        yield f"{sight.aborted:,} aborted"
    yield f"{sight.retracted:,} retracted"
    yield f"{counted(sight.evicted_pages, 'page')} evicted"
    if sight.prompt_tokens:
        yield f"hit rate {100 * sight.hit_tokens / sight.prompt_tokens:.1f} %"


def _checks(sight: Sight) -> Text:
    if sight.violations or sight.last_violation:
        number = f"{sight.violations:,} found, the last " if sight.violations else "the run says "
        return _labelled("violation", f"{number}{sight.last_violation}", style="bold red")
    if not sight.checked:
        return _labelled("checked", "nothing", style="yellow")
    return _labelled("checked", f"{counted(sight.checked, 'event')}, no violation", style="green")


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB"
