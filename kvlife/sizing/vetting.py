"""Vetting: whole numbers, fractions and ratios, and how a message shows what is none."""

from __future__ import annotations

import reprlib
from decimal import Decimal
from fractions import Fraction

from kvlife.errors import ConfigError

# No size, length or count is larger.
MOST = 1 << 62

_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 60


def quoted(value: object) -> str:
    """A value as a message shows it: of one that is long, its ends."""
    return _BRIEF.repr(value)


def vet_whole(name: str, value: object, low: int = 1) -> None:
    """Raise `ConfigError` for what is no whole number in [low, 2^62]."""
    if type(value) is not int or not low <= value <= MOST:
        raise ConfigError(
            f"{name} must be a whole number of at least {low}, and at most 2^62,"
            f" got {quoted(value)}"
        )


def vet_fraction(value: float | Decimal | Fraction) -> Fraction:
    """A fraction of memory as it was written (0.88 is 88/100); `ConfigError` outside (0, 1)."""
    fraction = _as_written(value)
    if not 0 < fraction < 1:
        raise ConfigError(
            f"mem_fraction must be between 0 and 1, without these, got {quoted(value)}: it is the"
            " part of the memory that weights and pools may take, as 0.88"
        )
    return fraction


def vet_ratio(what: str, value: object) -> Fraction:
    """A ratio as it was written (0.8 is 4/5); raises `ConfigError` for what is not above 0."""
    ratio = _as_written(value)
    if not ratio > 0:
        raise ConfigError(f"the ratio of {what} must be a number above 0, got {quoted(value)}")
    return ratio


def _as_written(value: object) -> Fraction:
    """No power of two near it; 0 for what is no number."""
    try:
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        return Fraction(0)
