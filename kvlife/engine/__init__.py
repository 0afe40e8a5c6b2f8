"""The engine: an observer of facts, and the commands of a scheduler on top of it."""

from kvlife.engine.batch import Batch
from kvlife.engine.engine import KvEngine
from kvlife.engine.observer import Observer
from kvlife.engine.results import Admission, Hit, Retraction, SessionTurn
from kvlife.engine.stats import Stats

__all__ = [
    "Admission",
    "Batch",
    "Hit",
    "KvEngine",
    "Observer",
    "Retraction",
    "SessionTurn",
    "Stats",
]
