"""Faults to put into sound runs, and what must find each of them, at which event."""

from kvlife.testing.faults.catalogue import FAULTS, fault_named
from kvlife.testing.faults.fault import Fault, Injection, Kind, When
from kvlife.testing.faults.faulty_run import Placed, write_faulty_run
from kvlife.testing.faults.placing import Course, Tally, place_all
from kvlife.testing.faults.trial import Verdict

__all__ = [
    "FAULTS",
    "Course",
    "Fault",
    "Injection",
    "Kind",
    "Placed",
    "Tally",
    "Verdict",
    "When",
    "fault_named",
    "place_all",
    "write_faulty_run",
]
