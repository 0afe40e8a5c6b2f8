"""A timeline as the viewers know it: tracks with slices, instants and counters, and flows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import attrs

Args = Mapping[str, int | str]
_NONE: Args = {}


@attrs.frozen(kw_only=True)
class Track:
    """A line of a timeline; `number` is its own, and `parent` the group that it stands in."""

    number: int
    name: str
    parent: Track | None = None
    counts: bool = False


class Sink(Protocol):
    """What a timeline is written to; `at` is in nanoseconds from its beginning, and never falls."""

    def declare(self, track: Track) -> None:
        """A track, before anything is on it; groups come before what stands in them."""

    def begin(self, track: Track, at: int, name: str, args: Args = _NONE) -> None:
        """A slice begins, within those that are open on the track."""

    def end(self, track: Track, at: int) -> None:
        """The innermost open slice of the track ends."""

    def instant(
        self,
        track: Track,
        at: int,
        name: str,
        args: Args = _NONE,
        *,
        flow: int | None = None,
        ends_flow: int | None = None,
    ) -> None:
        """Something happens; a flow begins there, or ends there."""

    def count(self, track: Track, at: int, value: int) -> None:
        """A counter has a value from here on."""

    def finish(self) -> None:
        """Nothing follows."""


class Tracks:
    """Declares each track when it is first asked for."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._known: dict[tuple[int, str], Track] = {}
        self._num = 0

    def group(self, name: str) -> Track:
        """A group of tracks."""
        return self._declared((0, name), None, name, counts=False)

    def slices(self, group: Track, name: str) -> Track:
        """A track for slices and instants."""
        return self._declared((group.number, name), group, name, counts=False)

    def counter(self, group: Track, name: str) -> Track:
        """A track for a number."""
        return self._declared((group.number, name), group, name, counts=True)

    def _declared(
        self, key: tuple[int, str], parent: Track | None, name: str, *, counts: bool
    ) -> Track:
        track = self._known.get(key)
        if track is None:
            self._num += 1
            track = Track(number=self._num, name=name, parent=parent, counts=counts)
            self._known[key] = track
            self._sink.declare(track)
        return track
