"""Sizes and fractions as people write them: 80GiB is 80 x 2^30 bytes, 80GB is 80 x 10^9.

A fraction of 0.88 is 88/100, and no power of two near it.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from kvlife.errors import ConfigError

_BINARY = {name: 1 << (10 * power) for power, name in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)}
_DECIMAL = {name: 10 ** (3 * power) for power, name in enumerate(("kB", "MB", "GB", "TB"), 1)}
UNITS = {"B": 1, **_DECIMAL, **_BINARY}

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)
_LONGEST = 40
MAX_BYTES = 1 << 62


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
    if num_bytes > MAX_BYTES:
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


def vet_fraction(value: float | Decimal | Fraction) -> Fraction:
    """A fraction of memory as it was written (0.88 is 88/100); `ConfigError` outside (0, 1)."""
    try:
        fraction = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        fraction = Fraction(0)
    if not 0 < fraction < 1:
        raise ConfigError(
            f"mem_fraction must be between 0 and 1, without these, got {value!r}: it is the part of"
            " the memory that weights and pools may take, as 0.88"
        )
    return fraction


def vet_ratio(what: str, value: object) -> Fraction:
    """A ratio as it was written (0.8 is 4/5); raises `ConfigError` for what is not above 0."""
    try:
        ratio = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        ratio = Fraction(0)
    if not ratio > 0:
        raise ConfigError(f"the ratio of {what} must be a number above 0, got {value!r}")
    return ratio
