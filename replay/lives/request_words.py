"""What an event says of the one request whose life is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Pinned,
    Protected,
    Released,
    Resumed,
    Retracted,
    RolledBack,
    SessionRestored,
    SessionSaved,
    StepDispatched,
    StepSettled,
    Unpinned,
    WindowEvicted,
)
from kvlife.replay.output.columns import counted


def event_text(event: Any, place: int | None) -> str:  # Any: by type
    """An event in words; `place` is that of the request's row among its rows."""
    told = _WORDS.get(type(event))
    return "" if told is None else told(event, place)


def steps_text(kinds: Mapping[str, int]) -> str:
    """A run of decode steps in words: how many, and what else there was in them."""
    steps = max(kinds.get(kind, 0) for kind in ("Allocated", "Committed", "StepDispatched"))
    told = [counted(steps, "decode step")]
    if rolled := kinds.get("RolledBack"):
        told.append(f"rolled back {counted(rolled, 'time')}")
    if moved := kinds.get("WindowEvicted"):
        told.append(f"the window moved {counted(moved, 'time')}")
    return ", ".join(told)


def _bound(event: Any, _place: int | None) -> str:
    told = f"row {event.row}, prompt {event.prompt_len:,}, {event.prefix_len:,} found in the cache"
    if isinstance(event, Resumed) and event.restored_len > event.prefix_len:
        told += f", {event.restored_len - event.prefix_len:,} restored from the host"
    return told


def _released(event: Any, _place: int | None) -> str:
    if event.row is None:
        num = event.host_pages.size
        backup = f", {counted(num, 'host page')} given back" if num else ""
        return f"{event.reason}, while it waited without a row{backup}"
    return f"{event.reason}, {_let_go(event)}"


def _retracted(event: Any, _place: int | None) -> str:
    backup = "" if event.backup is None else f", {counted(event.backup.size, 'host page')} kept"
    return f"its row is taken away{backup}, {_let_go(event)}"


def _let_go(event: Any) -> str:
    pages = sum(pages.size for pages in event.pages)
    return f"{counted(pages, 'page')} let go" if pages else "no page let go yet"


def _published(event: Any, _place: int | None) -> str:
    rebound = f", {counted(len(event.rebinds), 'page')} rebound" if len(event.rebinds) else ""
    return f"published up to {event.protected_len:,}{rebound}"


# Any: each takes the event type that it stands beside.
_WORDS: dict[type, Callable[[Any, Any], str]] = {
    Admitted: _bound,
    Resumed: _bound,
    Allocated: lambda event, place: f"allocated up to {event.allocated_len[place]:,}",
    Committed: lambda event, place: f"committed up to {event.committed_len[place]:,}",
    Protected: _published,
    RolledBack: lambda event, place: f"rolled back to {event.allocated_len[place]:,}",
    WindowEvicted: lambda event, place: f"its window begins at {event.evicted_len[place]:,}",
    Released: _released,
    Retracted: _retracted,
    SessionSaved: lambda event, _: (
        f"session {event.session_id} keeps its row with {counted(event.kept_len, 'token')}"
    ),
    SessionRestored: lambda event, _: (
        f"a turn of session {event.session_id} on row {event.row},"
        f" {counted(event.kept_len, 'token')} kept, prompt {event.prompt_len:,}"
    ),
    StepDispatched: lambda event, _: f"in step {event.step:,}",
    StepSettled: lambda event, _: f"step {event.step:,} settled, and its row let go of its pages",
    Pinned: lambda event, _: (
        f"pin {event.pin_id} ({event.kind}) on {counted(event.pages.size, 'page')}"
    ),
    Unpinned: lambda event, _: f"pin {event.pin_id} ended",
}
