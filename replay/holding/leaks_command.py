"""`kvlife leaks`: what is held, by whom and since when, and what nobody accounts for."""

from __future__ import annotations

import json as json_format
from typing import Annotated

from cyclopts import Parameter

from kvlife.errors import ConfigError
from kvlife.replay.cli import FINE, FOUND
from kvlife.replay.history.view import look
from kvlife.replay.holding.leaks import find_leaks
from kvlife.replay.holding.leaks_report import leaks_json, leaks_lines
from kvlife.replay.holding.losing import MAX_FOLDED
from kvlife.replay.options import AsJson, At, ListAll, LogPath, Salvage
from kvlife.replay.output.columns import print_lines
from kvlife.replay.output.progress import progress_bar


def leaks(
    log: LogPath,
    *,
    at: At = None,
    limit: Annotated[int, Parameter(help="How many holders, and lots of pages, are listed.")] = 20,
    all_: ListAll = False,
    salvage: Salvage = False,
    json: AsJson = False,
) -> int:
    """Tell what is held from what is lost: by whom, since when, and which event lost it.

    Exit status: 0 nothing is lost, 1 pages or rows are lost, or something is held where the run
    says it is idle, 2 the log is unusable.
    """
    if limit < 0:
        raise ConfigError(f"--limit is how many are listed, at least 0, got {limit}")
    view = look(log, at, salvage=salvage)
    with progress_bar("looking back", MAX_FOLDED, quiet=json) as bar:
        found = find_leaks(view, None if all_ else limit, bar.advance)
    if json:
        print(json_format.dumps(leaks_json(view, found)))
    else:
        print_lines(leaks_lines(view, found))
    return FOUND if found.wrong else FINE
