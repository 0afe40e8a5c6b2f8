"""What is available: free memory, less what the server must keep, less reservations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction

from kvlife.errors import ConfigError
from kvlife.sizing.figures import Figure
from kvlife.sizing.units import size_text
from kvlife.sizing.vetting import MOST, vet_whole


def available_bytes(
    free: int, pre_load: int, mem_fraction: Fraction, reservations: Mapping[str, int]
) -> Figure:
    """Those of `free - pre_load x (1 - mem_fraction) - reservations`; they may be below 0."""
    vet_whole("pre_model_load_memory", pre_load)
    if free > pre_load:
        raise ConfigError(
            f"{free:,} bytes are free after the weights were loaded, and {pre_load:,} were before:"
            " give both of the same device"
        )
    for name, size in reservations.items():
        vet_whole(f"the reservation {name!r}", size, 0)
    return Figure(
        name="available_bytes",
        value=free - kept_bytes(pre_load, mem_fraction) - sum(reservations.values()),
        unit="bytes",
        formula="free_bytes - ceil(pre_load_bytes x (1 - mem_fraction)) - reservations",
        inputs={
            "free_bytes": free,
            "pre_load_bytes": pre_load,
            "mem_fraction": float(mem_fraction),
            "reservations": sum(reservations.values()),
        },
        why=", ".join(f"{size:,} bytes for {name}" for name, size in reservations.items()),
    )


def kept_bytes(pre_load: int, mem_fraction: Fraction) -> int:
    """What weights and pools leave to the rest of the server, rounded up."""
    return math.ceil(pre_load * (1 - mem_fraction))


def ways_to(needed: int, available: Figure, mem_fraction: Fraction) -> Iterator[str]:
    """What would make `needed` bytes available, where `available` has too few."""
    inputs = {name: value for name, value in available.inputs if isinstance(value, int)}
    pre_load, free = inputs["pre_load_bytes"], inputs["free_bytes"]
    taken, reserved = pre_load - free, inputs["reservations"]
    wanted = needed + reserved + kept_bytes(pre_load, mem_fraction)
    device = math.ceil((needed + reserved + taken) / mem_fraction)
    if wanted <= pre_load:
        yield f"{wanted:,} bytes ({size_text(wanted)}) free at this mem_fraction"
    elif device <= MOST:
        yield f"a device of {device:,} bytes ({size_text(device)}) at this mem_fraction"
    fraction = math.ceil(Fraction(needed + reserved + taken, pre_load) * 1000) / 1000
    if fraction < 1:
        yield f"a mem_fraction of {fraction:.3f}"
