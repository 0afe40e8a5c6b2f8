"""Figures: each number of a plan with the formula that made it, so that a table can show why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

import attrs

from kvlife.errors import ConfigError

Value = int | float | str | Fraction
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def identifier(text: str) -> str:
    """A name as it may stand in a formula."""
    return text.replace("-", "_").replace(" ", "_")


def _as_inputs(inputs: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
    return tuple(inputs.items())


@attrs.frozen(kw_only=True)
class Figure:
    """One number: its unit, the formula in the names of its inputs, and their values.

    An input whose name is that of another figure is derived there. `numbers` is the formula with
    its numbers, where it is not simply that. `bound` says what stopped the number from being
    larger, `why` what else there is to say.
    """

    name: str
    value: Value
    unit: str
    formula: str
    inputs: tuple[tuple[str, Value], ...] = attrs.field(converter=_as_inputs, factory=dict)
    numbers: str = ""
    bound: str = ""
    why: str = ""

    def __str__(self) -> str:
        """The whole line: `131,072 bytes a token = 32 layers x (...)`."""
        return f"{shown(self.value)} {self.unit} = {self.filled}"

    @property
    def filled(self) -> str:
        """The formula with the numbers in the places of the names."""
        if self.numbers:
            return self.numbers
        known = dict(self.inputs)
        return _NAME.sub(
            lambda name: shown(known[name[0]]) if name[0] in known else name[0], self.formula
        )


def shown(value: Value) -> str:
    """A number for people: thousands apart, a fraction as a fraction."""
    if isinstance(value, Fraction) and value.denominator > 1:
        return f"{value.numerator:,}/{value.denominator:,}"
    if isinstance(value, int | Fraction):
        return f"{int(value):,}"
    return str(value)


def _as_figures(figures: Iterator[Figure]) -> tuple[Figure, ...]:
    return tuple(figures)


@attrs.frozen
class Figures:
    """The figures of a plan, in the order in which one follows from another."""

    all: tuple[Figure, ...] = attrs.field(converter=_as_figures)

    def __iter__(self) -> Iterator[Figure]:
        return iter(self.all)

    def __contains__(self, name: object) -> bool:
        return any(figure.name == name for figure in self.all)

    def __getitem__(self, name: str) -> Figure:
        """The figure of this name; raises `ConfigError` that lists the known."""
        for figure in self.all:
            if figure.name == name:
                return figure
        known = ", ".join(figure.name for figure in self.all)
        raise ConfigError(f"no figure {name!r}: the figures of this plan are {known}")

    def behind(self, name: str) -> Iterator[tuple[int, Figure]]:
        """The figure, and those it follows from, each once and with its depth."""
        seen: set[str] = set()
        stack = [(0, name)]
        while stack:
            depth, top = stack.pop()
            if top not in seen:
                seen.add(top)
                figure = self[top]
                yield depth, figure
                stack += [(depth + 1, part) for part, _ in reversed(figure.inputs) if part in self]
