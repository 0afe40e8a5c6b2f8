"""Every fault by name."""

from __future__ import annotations

from kvlife.errors import ConfigError
from kvlife.testing.faults import (
    columns,
    endings,
    flight,
    holders,
    hosting,
    lengths,
    lost,
    lost_results,
    pages,
    publishing,
    row_columns,
    windows,
)
from kvlife.testing.faults.fault import Fault

_MODULES = (
    endings,
    lost,
    lost_results,
    holders,
    lengths,
    pages,
    windows,
    publishing,
    flight,
    hosting,
    columns,
    row_columns,
)

FAULTS: dict[str, Fault] = {
    fault.name: fault for module in _MODULES for fault in module.FAULTS.found
}


def fault_named(name: str) -> Fault:
    """The fault of this name; raises `ConfigError`, which lists the names, where there is none."""
    if name not in FAULTS:
        raise ConfigError(f"no such fault: {name!r}; there are {', '.join(FAULTS)}")
    return FAULTS[name]
