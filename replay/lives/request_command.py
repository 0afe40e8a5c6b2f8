"""`kvlife request`: the life of a request, with its lengths and pages after each event."""

from __future__ import annotations

import json as json_format
from typing import Annotated

from cyclopts import Parameter

from kvlife.errors import ConfigError
from kvlife.replay.cli import FINE
from kvlife.replay.history.view import View, look
from kvlife.replay.lives.request_life import near_names, read_request
from kvlife.replay.lives.request_report import request_json, request_lines
from kvlife.replay.options import AsJson, At, LogPath, Salvage
from kvlife.replay.output.columns import output_signs, print_lines
from kvlife.replay.output.progress import progress_bar
from kvlife.replay.output.quoting import printable


def request(
    log: LogPath,
    rid: Annotated[str, Parameter(help="The request's id.")],
    *,
    at: At = None,
    limit: Annotated[int, Parameter(help="Show so many lines, half from either end.")] = 100,
    all_: Annotated[
        bool,
        Parameter(name="--all", negative="", help="Show every line, and each event of a step."),
    ] = False,
    salvage: Salvage = False,
    json: AsJson = False,
) -> int:
    """Show the life of a request: its events, its lengths and its pages after each.

    Decode steps are told as one line where nothing else happens to it. Exit status: 0 fine, 2 the
    log is unusable, or never had such a request.
    """
    if limit < 2:
        raise ConfigError(f"--limit is how many lines are shown, at least 2, got {limit}")
    view = look(log, at, salvage=salvage)
    total = view.ledger.next_seq - view.timeline.first_seq
    with progress_bar("reading", total, quiet=json) as bar:
        life = read_request(view.timeline, rid, view.ledger, bar.advance, whole=all_)
    if not life.is_known:
        raise ConfigError(_unknown(view, rid, life.troubles))
    if json:
        print(json_format.dumps(request_json(view, life)))
    else:
        print_lines(request_lines(view, life, None if all_ else limit, output_signs()))
    return FINE


def _unknown(view: View, rid: str, troubles: tuple[str, ...]) -> str:
    near = near_names(view.run, rid, view.ledger)
    meant = f": did you mean {', '.join(map(printable, near))}?" if near else ""
    where = f"from seq {view.timeline.first_seq} to {view.seq}"
    told = f"request {printable(rid)} is not in {view.run.path}, {where}{meant}"
    return "; ".join([told, *(f"not read: {trouble}" for trouble in troubles)])
