"""Every fault by name."""

from __future__ import annotations

from kvlife.errors import ConfigError
from kvlife.testing.faults import (
    columns,
    endings,
    flight,
    holders,
    lengths,
    lost,
    pages,
    publishing,
    windows,
)
from kvlife.testing.faults.fault import Fault

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for module in (endings, lost, holders, lengths, pages, windows, publishing, flight, columns)
    for fault in module.FAULTS.found
}


def fault_named(name: str) -> Fault:
    """The fault of this name; raises `ConfigError`, which lists the names, where there is none."""
    if name not in FAULTS:
        raise ConfigError(f"no such fault: {name!r}; there are {', '.join(FAULTS)}")
    return FAULTS[name]
