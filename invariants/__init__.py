"""The invariants of kvlife: a catalogue, the checks behind it, and the checker that runs them."""

from kvlife.invariants.catalogue import CATALOGUE, table_of_invariants
from kvlife.invariants.census import Census, IndexPages
from kvlife.invariants.checker import LEVELS, POLICIES, Checker
from kvlife.invariants.effect import Effect
from kvlife.invariants.finding import CheckStats, Evidence, Finding
from kvlife.invariants.invariant import Invariant

__all__ = [
    "CATALOGUE",
    "LEVELS",
    "POLICIES",
    "Census",
    "CheckStats",
    "Checker",
    "Effect",
    "Evidence",
    "Finding",
    "IndexPages",
    "Invariant",
    "table_of_invariants",
]
