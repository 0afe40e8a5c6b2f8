"""Numbers as a reader wants them: durations, shares, counts."""

from __future__ import annotations

_UNITS = ((86_400e9, "d"), (3600e9, "h"), (60e9, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "µs"))


def duration(ns: float) -> str:
    """Nanoseconds in the largest unit of which there is one, with three digits."""
    for size, unit in _UNITS:
        if ns >= size:
            return f"{_three_digits(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def span(length: float, kind: str) -> str:
    """A length on an axis of this kind: a duration, or a number of events."""
    if kind == "time":
        return duration(length)
    return f"{length:,.0f} event{'' if round(length) == 1 else 's'}"


def share(part: int, whole: int) -> str:
    """A part in percent, or that there is no whole."""
    return f"{100 * part / whole:.1f} %" if whole else "none"


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"
