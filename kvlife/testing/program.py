"""Programs: what a fuzzed run asked for, call by call, to be printed, run again and cut down."""

from __future__ import annotations

import attrs

Argument = int | str | list[int]


@attrs.frozen
class Call:
    """One verb with its arguments; `begin`, with the sizes of the pool, is the first."""

    verb: str
    args: dict[str, Argument]

    def __str__(self) -> str:
        args = ", ".join(f"{name}={value!r}" for name, value in self.args.items())
        return f"state.{self.verb}({args})"

    def but(self, **changed: Argument) -> Call:
        """The call with other arguments; those that it has not are left out."""
        args = {name: changed.get(name, value) for name, value in self.args.items()}
        return Call(self.verb, args)


Program = tuple[Call, ...]


def text_of(program: Program, machine_name: str) -> str:
    """The program as Python, one call a line."""
    return "\n".join([f"state = {machine_name}()", *map(str, program)]) + "\n"
