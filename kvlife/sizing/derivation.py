"""A figure, with the arithmetic that made it."""

from __future__ import annotations

from fractions import Fraction

import attrs

Value = int | float | str | Fraction


def _as_inputs(inputs: dict[str, Value]) -> tuple[tuple[str, Value], ...]:
    return tuple(inputs.items())


@attrs.frozen(kw_only=True)
class Derivation:
    """One figure: its value and unit, the formula as text, and each input of it by name.

    `formula` stands on the right of the equals sign, with the numbers filled in
    ("32 layers x (k 8 x 128 x 2 + v 8 x 128 x 2)"); `inputs` names where they come from.
    """

    value: int | Fraction
    unit: str
    formula: str
    inputs: tuple[tuple[str, Value], ...] = attrs.field(converter=_as_inputs, default=())

    def __str__(self) -> str:
        """The whole line: `131,072 bytes a token = 32 layers x (...)`."""
        return f"{shown(self.value)} {self.unit} = {self.formula}"


def shown(value: Value) -> str:
    """A number for people: thousands apart, a fraction as a fraction."""
    if isinstance(value, Fraction) and value.denominator > 1:
        return f"{value.numerator:,}/{value.denominator:,}"
    if isinstance(value, int | Fraction):
        return f"{int(value):,}"
    return str(value)
