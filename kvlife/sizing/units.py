"""Byte sizes as people write them: 80GiB is 80 x 2^30 bytes, 80GB is 80 x 10^9."""

from __future__ import annotations

import re
from fractions import Fraction

from kvlife.errors import ConfigError
from kvlife.sizing.vetting import MOST

_BINARY = {name: 1 << (10 * power) for power, name in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)}
_DECIMAL = {name: 10 ** (3 * power) for power, name in enumerate(("kB", "MB", "GB", "TB"), 1)}
UNITS = {"B": 1, **_DECIMAL, **_BINARY}

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)
_LONGEST = 40


def parse_bytes(name: str, text: str) -> int:
    """The bytes that `text` stands for, rounded down; `name` is whose size it is.

    A number without a unit is refused, as GB and GiB differ by 7%. Raises `ConfigError`.
    """
    match = _SIZE.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None:
        raise ConfigError(f"{name} {text[:_LONGEST]!r} is no size: write 80GiB (80 x 2^30 bytes)")
    number, unit = match.groups()
    if unit not in UNITS:
        raise ConfigError(f"{name} {text!r}: {_against(unit)}; the units are {', '.join(UNITS)}")
    num_bytes = int(Fraction(number) * UNITS[unit])
    if num_bytes > MOST:
        raise ConfigError(f"{name} {text!r} is more than 2^62 bytes, and no device has as much")
    return num_bytes


def _against(unit: str) -> str:
    if not unit:
        return "a size needs its unit"
    near = [known for known in UNITS if known.lower() == unit.lower()]
    near += [known for known in UNITS if known[:-1].lower().rstrip("i") == unit.lower()]
    wanted = f", write {' or '.join(near)}" if near else ""
    return f"{unit!r} is no unit{wanted}"


def size_text(num_bytes: int) -> str:
    """A size in both units, so that none is taken for the other: 80.00 GiB (85.90 GB)."""
    for binary, decimal in zip(reversed(_BINARY), reversed(_DECIMAL), strict=True):
        if num_bytes >= UNITS[binary] or binary == "KiB":
            low, high = num_bytes / UNITS[binary], num_bytes / UNITS[decimal]
            return f"{low:,.2f} {binary} ({high:,.2f} {decimal})"
    raise AssertionError("the smallest unit takes every size")
