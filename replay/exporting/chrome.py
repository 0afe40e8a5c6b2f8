"""A timeline in Chrome's trace-event format: JSON that chrome://tracing and Perfetto open."""

from __future__ import annotations

from typing import BinaryIO

import msgspec

from kvlife.replay.exporting.tracks import Args, Track

_NONE: Args = {}
# A flow binds to a slice, and to nothing that has no width.
_WIDTH_US = 0.001
_LINES = 1024


class ChromeSink:
    """Groups are processes and tracks are threads; times are in microseconds."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lines: list[bytes] = []
        self._separator = b"\n"
        file.write(b'{"displayTimeUnit":"ns","traceEvents":[')

    def declare(self, track: Track) -> None:
        """Names of processes and threads stand among the events."""
        if track.parent is None:
            self._put(track, 0, {"ph": "M", "name": "process_name", "args": {"name": track.name}})
            order = {"sort_index": track.number}
            self._put(track, 0, {"ph": "M", "name": "process_sort_index", "args": order})
        elif not track.counts:
            self._put(track, 0, {"ph": "M", "name": "thread_name", "args": {"name": track.name}})

    def begin(self, track: Track, at: int, name: str, args: Args = _NONE) -> None:
        """A slice begins."""
        self._put(track, at, {"ph": "B", "name": name, "args": args})

    def end(self, track: Track, at: int) -> None:
        """The innermost slice ends."""
        self._put(track, at, {"ph": "E"})

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
        """An instant; where a flow binds to it, a slice as short as can be."""
        if flow is None and ends_flow is None:
            self._put(track, at, {"ph": "i", "s": "t", "name": name, "args": args})
            return
        self._put(track, at, {"ph": "X", "dur": _WIDTH_US, "name": name, "args": args})
        pages = {"cat": "pages", "name": "pages"}
        if ends_flow is not None:
            self._put(track, at, {"ph": "f", "bp": "e", "id": ends_flow, **pages})
        if flow is not None:
            self._put(track, at, {"ph": "s", "id": flow, **pages})

    def count(self, track: Track, at: int, value: int) -> None:
        """A counter by itself."""
        self._put(track, at, {"ph": "C", "name": track.name, "args": {"value": value}})

    def finish(self) -> None:
        """The end of the JSON object."""
        self._flush()
        self._file.write(b"\n]}\n")

    def _put(self, track: Track, at: int, told: dict[str, object]) -> None:
        told["ts"] = at / 1000
        told["pid"] = track.number if track.parent is None else track.parent.number
        told["tid"] = track.number
        self._lines.append(msgspec.json.encode(told))
        if len(self._lines) == _LINES:
            self._flush()

    def _flush(self) -> None:
        if self._lines:
            self._file.write(self._separator + b",\n".join(self._lines))
            self._lines, self._separator = [], b",\n"
