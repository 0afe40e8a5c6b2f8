"""`kvlife page`: who owns a page since when, and what happened to it."""

from __future__ import annotations

import json as json_format
from typing import Annotated

from cyclopts import Parameter

from kvlife.errors import ConfigError
from kvlife.replay.cli import FINE
from kvlife.replay.history.selecting import find_group, refuse_page
from kvlife.replay.history.view import look
from kvlife.replay.lives.page_life import page_now, present_life, space_of, whole_history
from kvlife.replay.lives.page_report import page_json, page_lines
from kvlife.replay.options import AsJson, At, LogPath, Salvage
from kvlife.replay.output.columns import print_lines
from kvlife.replay.output.event_words import HOST
from kvlife.replay.output.progress import progress_bar


def page(
    log: LogPath,
    page: Annotated[int, Parameter(help="The page.")],
    *,
    group: Annotated[
        str | None, Parameter(help="Its cache group; by default the base group.")
    ] = None,
    host: Annotated[
        bool, Parameter(negative="", help="The page is one of the host's, where backups lie.")
    ] = False,
    at: At = None,
    limit: Annotated[int, Parameter(help="Show the last so many touches, and the first.")] = 40,
    all_: Annotated[
        bool,
        Parameter(name="--all", negative="", help="Show all lives of the page, and every touch."),
    ] = False,
    salvage: Salvage = False,
    json: AsJson = False,
) -> int:
    """Show who owns a page since when, and what happened to it: its present life, or its last.

    Each line is a touch: it was taken, referenced, published, let go, evicted, pinned. Exit status:
    0 fine, 2 the log is unusable, or has no such page.
    """
    if limit < 1:
        raise ConfigError(f"--limit is how many touches are shown, at least 1, got {limit}")
    if host and group is not None:
        raise ConfigError("--host and --group: the pages of the host belong to no cache group")
    view = look(log, at, salvage=salvage)
    layout = view.ledger.layout
    found = None if host else find_group(layout, group)
    space_idx = None if found is None else found.space_idx
    space = HOST if space_idx is None else layout.spaces[space_idx].name
    num_pages = space_of(view.ledger, space_idx).num_pages
    refuse_page(page, space, num_pages, f"after seq {view.ledger.next_seq - 1}")
    now = page_now(view.ledger, space_idx, page)
    read = view.ledger.next_seq - view.timeline.first_seq
    with progress_bar("reading", read, quiet=json or not all_) as bar:
        if all_:
            stop = view.ledger.next_seq
            life = whole_history(view.timeline, space_idx, page, stop, bar.advance)
        else:
            life = present_life(view.timeline, space_idx, page, view.ledger, bar.advance)
    if json:
        print(json_format.dumps(page_json(view, found, page, now, life)))
    else:
        lines = page_lines(view, found, page, now, life, None if all_ else limit)
        print_lines(lines)
    return FINE
