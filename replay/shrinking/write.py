"""Writing a shrunk program as a run of its own, under an observer that raises."""

from __future__ import annotations

from pathlib import Path

from kvlife.engine import Observer
from kvlife.errors import InvariantViolation
from kvlife.log import LogWriter
from kvlife.replay.shrinking.shrinker import Shrinker


def write_small(shrinker: Shrinker, folder: Path, time_ns: int) -> InvariantViolation:
    """Report the events to an observer with a log; returns the violation that ends the run."""
    trial = shrinker.trial
    observer = Observer(
        shrinker.best.config, log=LogWriter(folder, clock_ns=lambda: time_ns), clock=lambda: time_ns
    )
    for event in trial.events:
        observer.observe(event)
    try:
        observer.observe(trial.last)
    except InvariantViolation as violation:
        return violation
    raise AssertionError("what a trial finds, an observer finds")
