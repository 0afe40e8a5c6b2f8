"""`kvlife inspect`: the state of a log at an event, whole or of one row, request or session."""

from __future__ import annotations

import json as json_format
from typing import Annotated, Literal

from cyclopts import Parameter

from kvlife.errors import ConfigError
from kvlife.replay.cli import FINE
from kvlife.replay.history.view import look
from kvlife.replay.holding.holdings import Holdings
from kvlife.replay.holding.inspect_holder import Subject, find_subject, subject_json, subject_lines
from kvlife.replay.holding.inspect_json import state_json
from kvlife.replay.holding.inspect_state import Shown, state_lines
from kvlife.replay.options import AsJson, At, ListAll, LogPath, Salvage
from kvlife.replay.output.columns import output_signs, print_lines


def inspect(
    log: LogPath,
    *,
    at: At = None,
    row: Annotated[int | None, Parameter(help="Show one row, in full.")] = None,
    request: Annotated[str | None, Parameter(help="Show one request, in full.")] = None,
    session: Annotated[str | None, Parameter(help="Show one session, in full.")] = None,
    sort: Annotated[
        Literal["pages", "age", "tokens", "row"], Parameter(help="Which rows come first.")
    ] = "pages",
    limit: Annotated[int, Parameter(help="How many rows, pins, ... are listed of each.")] = 20,
    all_: ListAll = False,
    salvage: Salvage = False,
    json: AsJson = False,
) -> int:
    """Show the state of a log: pages by state, rows by holder, sessions, pins, steps in flight.

    Exit status: 0 fine, 2 the log is unusable, or has no such seq, row, request or session.
    """
    if limit < 0:
        raise ConfigError(f"--limit is how many are listed, at least 0, got {limit}")
    subject = Subject.of(row=row, request=request, session=session)
    view = look(log, at, salvage=salvage)
    if subject is not None:
        found = find_subject(view, subject)
        if json:
            print(json_format.dumps(subject_json(view, found)))
        else:
            print_lines(subject_lines(view, found, output_signs()))
        return FINE
    holdings = Holdings(view.ledger)
    if json:
        print(json_format.dumps(state_json(view, holdings, sort)))
    else:
        shown = Shown(sort=sort, limit=None if all_ else limit, signs=output_signs())
        print_lines(state_lines(view, holdings, shown))
    return FINE
