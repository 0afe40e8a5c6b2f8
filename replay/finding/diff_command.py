"""`kvlife diff`: the first event in which logs differ, the states there, and what differs after."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from kvlife.errors import ConfigError
from kvlife.log import open_run
from kvlife.replay.cli import FINE, FOUND
from kvlife.replay.finding.diff_report import comparison_json, comparison_lines
from kvlife.replay.finding.differing import compare_runs
from kvlife.replay.finding.sameness import ignored_named
from kvlife.replay.options import AsJson, LogPath, Salvage
from kvlife.replay.output.columns import print_lines
from kvlife.replay.output.opening import locate_log
from kvlife.replay.output.progress import progress_bar


def diff(
    first: LogPath,
    *others: Annotated[Path, Parameter(help="Runs that are each held against the first.")],
    ignore: Annotated[
        tuple[str, ...],
        Parameter(
            help="A kind of event, a field, or a field of one kind (Allocated.pages) that is not"
            " compared; may stand repeatedly."
        ),
    ] = (),
    salvage: Salvage = False,
    json: AsJson = False,
) -> int:
    """Find the first event in which logs differ: every field of it counts but the time.

    Exit status: 0 no difference was found, 1 one was, 2 a log is unusable.
    """
    if not others:
        raise ConfigError(f"{first} is to be held against what? Name a second log")
    ignored = ignored_named(ignore)
    comparisons = []
    begun = locate_log(first)
    for other in others:
        left, right = (open_run(path, salvage=salvage) for path in (begun, locate_log(other)))
        total = max(left.next_seq - left.begins_at, right.next_seq - right.begins_at)
        with progress_bar("comparing", total, quiet=json) as bar:
            comparison = compare_runs(left, right, ignored, bar.advance)
        comparisons.append(comparison)
        if not json:
            print_lines(comparison_lines(comparison))
    differs = any(comparison.differs for comparison in comparisons)
    if json:
        print(
            json_format.dumps(
                {
                    "logs": [str(first), *map(str, others)],
                    "differs": differs,
                    "ignored": sorted(ignored.kinds | ignored.fields),
                    "comparisons": [comparison_json(each) for each in comparisons],
                }
            )
        )
    return FOUND if differs else FINE
