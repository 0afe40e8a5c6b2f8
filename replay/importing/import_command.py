"""`kvlife import vllm` and `kvlife import kv-events`: what a real engine recorded, checked."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from time import perf_counter
from typing import Annotated

from cyclopts import App, Parameter

from kvlife.capture import check_events, import_vllm
from kvlife.errors import CaptureError, ConfigError
from kvlife.line_file import read_lines
from kvlife.replay.cli import FINE, FOUND
from kvlife.replay.importing.import_report import (
    import_as_json,
    import_lines,
    stream_as_json,
    stream_lines,
)
from kvlife.replay.options import AsJson
from kvlife.replay.output.columns import print_lines
from kvlife.replay.output.output_file import refuse_log
from kvlife.replay.output.progress import progress_bar

POLICIES = ("raise", "collect")

app = App(
    name="import",
    help="Read what a real engine recorded, check it, and write it as a log.",
    help_format="plaintext",
)


@app.command
def vllm(
    trace: Annotated[Path, Parameter(help="A capture in the format kvlife-vllm-capture/1.")],
    *,
    log: Annotated[
        Path | None, Parameter(name=["--log", "-o"], help="The folder that gets the run's log.")
    ] = None,
    policy: Annotated[
        str, Parameter(help="At the first thing that is wrong: raise (stop), or collect (go on).")
    ] = "raise",
    json: AsJson = False,
) -> int:
    """Import a capture of vLLM as a log, check each event, and compare all that the capture says.

    Exit status: 0 fine, 1 the capture shows a fault or contradicts itself, 2 it is unusable.
    """
    if policy not in POLICIES:
        raise ConfigError(f"--policy is one of {', '.join(POLICIES)}, got {policy!r}")
    if log is not None:
        refuse_log(log)
    begun = perf_counter()
    with progress_bar("importing", _num_lines(trace, quiet=json), quiet=json) as bar:
        outcome = import_vllm(trace, log=log, policy=policy, reached=bar.reach)
    seconds = perf_counter() - begun
    if json:
        print(json_format.dumps(import_as_json(outcome, seconds), default=str))
    else:
        print_lines(import_lines(outcome, seconds, log))
    return FINE if outcome.clean else FOUND


@app.command
def kv_events(
    file: Annotated[
        Path,
        Parameter(help="Events, kvlife-vllm-kvevents/1, or messages, kvlife-vllm-kvwire/1."),
    ],
    *,
    json: AsJson = False,
) -> int:
    """Check an engine's own stream of cache events, and say what it proves and what it cannot.

    Exit status: 0 nothing is proven wrong, 1 something is, 2 the file is unusable.
    """
    begun = perf_counter()
    with progress_bar("reading", _num_lines(file, quiet=json), quiet=json) as bar:
        outcome = check_events(file, bar.reach)
    seconds = perf_counter() - begun
    if json:
        print(json_format.dumps(stream_as_json(outcome, seconds)))
    else:
        print_lines(stream_lines(outcome, seconds))
    return FINE if outcome.clean else FOUND


def _num_lines(path: Path, *, quiet: bool) -> int:
    """How many lines a bar will have to show; not counted where there will be none."""
    if quiet or not sys.stderr.isatty():
        return 0
    return sum(1 for _line in read_lines(path, CaptureError))
