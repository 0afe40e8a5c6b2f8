"""The log: an append-only record of a run's events, in files."""

from kvlife.log.decode import UnknownEvent
from kvlife.log.files import list_runs as runs
from kvlife.log.header import RunHeader
from kvlife.log.reader import LogRun, Skipped, open_run
from kvlife.log.reader import LogRun as LogReader
from kvlife.log.retention import Retention
from kvlife.log.snapshot_file import Frozen, StateSnapshot
from kvlife.log.tail import CloseMark, Gap
from kvlife.log.writer import LogWriter

__all__ = [
    "CloseMark",
    "Frozen",
    "Gap",
    "LogReader",
    "LogRun",
    "LogWriter",
    "Retention",
    "RunHeader",
    "Skipped",
    "StateSnapshot",
    "UnknownEvent",
    "open_run",
    "runs",
]
