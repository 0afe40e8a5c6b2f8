"""Ratios and fractions, taken as they were written: 0.88 is 88/100, and no power of two near it."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from kvlife.errors import ConfigError


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
