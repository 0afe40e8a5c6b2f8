"""What a capture says that cannot be: where it contradicts itself or the state it led to."""

from __future__ import annotations

import attrs

from kvlife.errors import CaptureError

MAX_KEPT = 100
_MAX_SHOWN = 200


@attrs.frozen(kw_only=True)
class Contradiction:
    """One statement of a line that what came before it does not allow."""

    line: int
    op: str
    what: str

    def __str__(self) -> str:
        """The line, its op, and what is wrong with it."""
        return f"line {self.line}, {self.op}: {self.what}"


class Stopped(CaptureError):
    """A contradiction ended the import, or what a line asks for cannot be done at all."""

    def __init__(self, contradiction: Contradiction) -> None:
        super().__init__(str(contradiction))
        self.contradiction = contradiction


class Contradictions:
    """Collects contradictions; where the first is to end the import, it raises `Stopped`.

    `place` says where the import is, as the number and op of a line: what is found is about that.
    """

    def __init__(self, *, stop_at_first: bool) -> None:
        """Nothing is found yet."""
        self.stops_at_first = stop_at_first
        self.place = (0, "header")
        self.found: list[Contradiction] = []
        self.num_found = 0
        self.num_compared = 0

    def same(self, what: str, said: object, held: object) -> bool:
        """Hold what the line says of `what` against what is the case."""
        self.num_compared += 1
        if said == held:
            return True
        self.note(f"{what} is {_shown(said)}, and by what came before it is {_shown(held)}")
        return False

    def note(self, what: str) -> None:
        """Something is wrong; the import goes on unless the first fault ends it."""
        contradiction = self._keep(what)
        if self.stops_at_first:
            raise Stopped(contradiction)

    def refuse(self, what: str) -> Stopped:
        """The error for what cannot be done; the caller raises it."""
        return Stopped(self._keep(what))

    def _keep(self, what: str) -> Contradiction:
        contradiction = Contradiction(line=self.place[0], op=self.place[1], what=what)
        self.num_found += 1
        if len(self.found) < MAX_KEPT:
            self.found.append(contradiction)
        return contradiction


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
