"""`kvlife bisect`: the first event after which a condition holds, or that breaks an invariant."""

from __future__ import annotations

import json as json_format
from time import perf_counter
from typing import Annotated, Literal

from cyclopts import Parameter

from kvlife.errors import ConfigError
from kvlife.replay.cli import FINE, FOUND
from kvlife.replay.finding.bisect_report import Answer, answer_json, answer_lines
from kvlife.replay.finding.bisection import Searcher
from kvlife.replay.finding.conditions import Condition, parse_condition
from kvlife.replay.finding.invariant_search import audit_of, first_break, invariant_named
from kvlife.replay.finding.metrics import kinds_of_metrics
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.options import AsJson, LogPath, Salvage
from kvlife.replay.output.columns import print_lines
from kvlife.replay.output.opening import open_log
from kvlife.replay.output.progress import progress_bar

_CONDITION = (
    "An invariant's id; comparisons (< <= > >= == !=) of metrics and numbers, joined by and, or,"
    " not: free_pages < 100, refs(page=12) > 1; or package.module:function, which is called with"
    " each Ledger. Metrics, with what names what they are of: "
    + "; ".join(f"{', '.join(names)} ({words})" for words, names in kinds_of_metrics().items())
    + "."
)


def bisect(
    log: LogPath,
    condition: Annotated[str, Parameter(help=_CONDITION)],
    *,
    from_: Annotated[
        int | None, Parameter(name="--from", help="Search the states from this event on.")
    ] = None,
    to: Annotated[int | None, Parameter(help="The last event to look at.")] = None,
    search: Annotated[
        Literal["snapshots", "halving", "events"],
        Parameter(
            help="snapshots: each in order, then the events before the first that has it. halving:"
            " fewer of them, for what never ceases to hold. events: behind every event, for"
            " certain."
        ),
    ] = "snapshots",
    salvage: Salvage = False,
    json: AsJson = False,
) -> int:
    """Find the first event after which a condition holds, or that breaks an invariant.

    Exit status: 0 fine (a metric's condition holds somewhere or nowhere, an invariant nowhere
    broken), 1 the invariant is broken, 2 the log or the condition is unusable.
    """
    begun = perf_counter()
    run = open_log(log, salvage=salvage)
    invariant = invariant_named(condition.strip())
    wanted = None if invariant else parse_condition(condition, run.layout)
    timeline = Timeline(run)
    start, stop = _bounds(timeline, from_, to)
    with progress_bar("searching", stop - start, quiet=json) as bar:
        searcher = Searcher(
            timeline,
            wanted.holds
            if wanted
            else lambda ledger: invariant is not None and audit_of(invariant, ledger) is not None,
            start=start,
            stop=stop,
            search=search,
            dear=wanted is None,
            reach=bar.reach,
        )
        found = first_break(searcher, invariant, bar.reach) if invariant else searcher.find()
        answer = Answer.of(searcher, found, condition, wanted)
    _refuse_what_never_was(answer, wanted)
    if json:
        print(json_format.dumps(answer_json(answer, perf_counter() - begun), default=str))
    else:
        print_lines(answer_lines(answer, perf_counter() - begun))
    return FOUND if invariant and answer.search.found else FINE


def _bounds(timeline: Timeline, from_: int | None, to: int | None) -> tuple[int, int]:
    low, high = timeline.first_seq, timeline.last_seq
    for name, seq in (("--from", from_), ("--to", to)):
        if seq is not None and not low <= seq < max(timeline.run.next_seq, low + 1):
            raise ConfigError(
                f"{name} {seq}: {timeline.run.path} has events [{low}, {timeline.run.next_seq})"
            )
    if from_ is not None and to is not None and to < from_:
        raise ConfigError(f"--to {to} lies before --from {from_}")
    start = low if from_ is None else min(from_, high)
    return start, high if to is None else min(to + 1, high)


def _refuse_what_never_was(answer: Answer, condition: Condition | None) -> None:
    """Nothing was found for a page, request or session that was never there."""
    if condition is None or answer.search.found:
        return
    never = [term.text for term in condition.terms if term.asked and not term.had_value]
    if never:
        raise ConfigError(
            f"{' and '.join(never)}: nothing of that name was there in any state of"
            f" {answer.path} that was looked at, so that no comparison with it holds"
        )
