"""Workloads, and a scheduler loop that runs them through the engine."""

from kvlife.simulation.mooncake import read_mooncake
from kvlife.simulation.synthetic import generate
from kvlife.simulation.synthetic_config import SyntheticConfig
from kvlife.simulation.workload import Turns, Workload

__all__ = ["SyntheticConfig", "Turns", "Workload", "generate", "read_mooncake"]
