"""Workloads, and a scheduler loop that runs them through the engine."""

from kvlife.simulation.mooncake import read_mooncake
from kvlife.simulation.pool_sizing import least_pages, pages_without_eviction, size_pools
from kvlife.simulation.scheduler import Scheduler
from kvlife.simulation.scheduler_config import SchedulerConfig
from kvlife.simulation.sequential import SequentialRun
from kvlife.simulation.simulation_run import SimulationOutcome, SimulationPlan, simulate
from kvlife.simulation.steady_log import SteadyLog
from kvlife.simulation.synthetic import generate
from kvlife.simulation.synthetic_config import SyntheticConfig
from kvlife.simulation.tally import Tally
from kvlife.simulation.virtual_time import VirtualClock
from kvlife.simulation.workload import Turns, Workload

__all__ = [
    "Scheduler",
    "SchedulerConfig",
    "SequentialRun",
    "SimulationOutcome",
    "SimulationPlan",
    "SteadyLog",
    "SyntheticConfig",
    "Tally",
    "Turns",
    "VirtualClock",
    "Workload",
    "generate",
    "least_pages",
    "pages_without_eviction",
    "read_mooncake",
    "simulate",
    "size_pools",
]
