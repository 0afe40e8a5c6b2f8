"""Making a log small: a program of its events, cut as long as it breaks the same invariant."""

from kvlife.replay.shrinking.as_test import as_test
from kvlife.replay.shrinking.culprit import Culprit, first_culprit, recorded_culprit
from kvlife.replay.shrinking.program import Program
from kvlife.replay.shrinking.report import Report
from kvlife.replay.shrinking.shrinker import Shrinker
from kvlife.replay.shrinking.slicing import slice_run
from kvlife.replay.shrinking.trial import Trial, run_trial
from kvlife.replay.shrinking.write import write_small

__all__ = [
    "Culprit",
    "Program",
    "Report",
    "Shrinker",
    "Trial",
    "as_test",
    "first_culprit",
    "recorded_culprit",
    "run_trial",
    "slice_run",
    "write_small",
]
