"""`kvlife why`: what stands in the way of a reset, an eviction or an admission, by holder."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import attrs
from cyclopts import Parameter

from kvlife.errors import ConfigError
from kvlife.replay.cli import FINE
from kvlife.replay.history.view import View, look
from kvlife.replay.holding.holdings import Holdings
from kvlife.replay.holding.inspect_json import view_json
from kvlife.replay.holding.why import Answer, Room, why_admit, why_evict, why_reset
from kvlife.replay.options import AsJson, At, ListAll, LogPath, Salvage
from kvlife.replay.output.columns import Line, aligned, counted, noted, print_lines
from kvlife.replay.output.quoting import printable

NAME = 44
# What belongs to a question, beside the state that it is asked of.
TAKEN = {"reset": (), "evict": ("PAGES", "--group"), "admit": ("--tokens", "--prefix-pages")}


def why(
    log: LogPath,
    what: Annotated[
        Literal["reset", "evict", "admit"],
        Parameter(help="To flush the whole cache, to evict pages, or to admit a request."),
    ],
    pages: Annotated[int | None, Parameter(help="evict: how many pages should go.")] = None,
    *,
    group: Annotated[
        str | None, Parameter(help="evict: of this cache group; else of the base group.")
    ] = None,
    tokens: Annotated[int | None, Parameter(help="admit: how long the prompt is.")] = None,
    prefix_pages: Annotated[
        int | None,
        Parameter(help="admit: pages of the base group that the cache is taken to have."),
    ] = None,
    at: At = None,
    limit: Annotated[int, Parameter(help="How many holders are listed.")] = 20,
    all_: ListAll = False,
    salvage: Salvage = False,
    json: AsJson = False,
) -> int:
    """Say what stands in the way, by holder: `why LOG evict 100`, `why LOG admit --tokens 4096`.

    Exit status: 0 whatever the answer is (--json has it as `possible`), 2 the log or the question
    is unusable.
    """
    if limit < 0:
        raise ConfigError(f"--limit is how many are listed, at least 0, got {limit}")
    given = {"PAGES": pages, "--group": group, "--tokens": tokens, "--prefix-pages": prefix_pages}
    _refuse_odd(what, {name: value for name, value in given.items() if value is not None})
    _refuse_numbers(what, pages, tokens, prefix_pages)
    view = look(log, at, salvage=salvage)
    holdings = Holdings(view.ledger)
    if what == "reset":
        answer = why_reset(holdings)
    elif what == "evict":
        answer = why_evict(holdings, pages or 0, group)
    else:
        answer = why_admit(holdings, tokens or 0, prefix_pages or 0)
    if json:
        print(json_format.dumps({**view_json(view), **attrs.asdict(answer)}))
    else:
        shown = None if all_ else limit
        print_lines(_lines(view, answer, shown))
    return FINE


def _refuse_odd(what: str, given: Mapping[str, object]) -> None:
    odd = " and ".join(name for name in given if name not in TAKEN[what])
    if odd:
        takes = " and ".join(TAKEN[what]) or "neither a number nor a name"
        raise ConfigError(f"{odd}: is no part of this question; why LOG {what} takes {takes}")


def _refuse_numbers(
    what: str, pages: int | None, tokens: int | None, prefix_pages: int | None
) -> None:
    if what == "evict" and (pages is None or pages < 1):
        raise ConfigError("why LOG evict PAGES: say how many pages should go, at least 1")
    if what == "admit" and (tokens is None or tokens < 1):
        raise ConfigError("why LOG admit --tokens N: say how long the prompt is, at least 1")
    if prefix_pages is not None and prefix_pages < 0:
        raise ConfigError(f"--prefix-pages is a number of pages, at least 0, got {prefix_pages}")


def _lines(view: View, answer: Answer, limit: int | None) -> Iterator[Line]:
    yield "bold", f"{printable(str(view.run.path))}, {view.moment}"
    for note in view.notes:
        yield from noted("yellow", "note        ", printable(note))
    yield from noted("green" if answer.possible else "bold red", "", answer.verdict)
    for reason in answer.reasons:
        yield from noted("red", "because     ", reason)
    for note in answer.notes:
        yield from noted("dim", "note        ", note)
    for room in answer.rooms:
        yield from _room_lines(room, limit)


def _room_lines(room: Room, limit: int | None) -> Iterator[Line]:
    yield "", ""
    shared = "" if room.groups == (room.space,) else f" ({', '.join(room.groups)})"
    asked = f"{room.asked:,} asked for, " if room.asked else ""
    free = "" if room.cached_only else f"{room.free:,} free, "
    of = f"{room.total:,} {'cached ' if room.cached_only else ''}pages"
    lost = f", {room.lost:,} lost" if room.lost else ""
    yield "", f"{room.space}{shared}: {asked}{free}{room.evictable:,} evictable of {of}{lost}"
    if not room.blockers:
        yield "", "  nobody holds the rest" if room.lost else "  nobody holds a page"
        return
    cells = [("  held by", "pages", "alone", "")]
    for blocker in room.blockers[:limit]:
        what = f"  {printable(blocker.what, NAME)}"
        numbers = (f"{blocker.pages:,}", f"{blocker.alone:,}")
        cells.append((what, *numbers, printable(blocker.why)))
    for number, line in enumerate(aligned(cells, "lrrl")):
        yield "" if number else "dim", line
    left = len(room.blockers) - len(cells) + 1
    if left:
        yield "dim", f"  {counted(left, 'holder')} more: --all"
    yield (
        "dim",
        "  alone: what comes back if this holder alone goes (as free or as evictable pages)",
    )
