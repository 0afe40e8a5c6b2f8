"""Contracts as test cases: subclass one, say how to make yours, and run it."""

from kvlife.testing.conformance.engines import EngineConformance
from kvlife.testing.conformance.stores import LogStoreConformance

__all__ = ["EngineConformance", "LogStoreConformance"]
