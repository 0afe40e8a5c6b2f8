"""The pages that events name, and those that they take."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kvlife.events import Allocated, Event, Resumed, RolledBack

I32 = npt.NDArray[np.int32]


def pages_named(event: Event) -> Iterator[tuple[int, I32]]:
    """Every list of pages in an event, with its group."""
    for name in ("pages", "restored"):
        value = getattr(event, name, ())
        lists = enumerate(value) if isinstance(value, tuple) else [(event_group(event), value)]
        yield from lists
    for name in ("rebinds", "copies"):
        for link in getattr(event, name, ()):
            yield int(link[0]), link[2:]


def pages_taken(event: Event) -> Iterator[tuple[int, I32]]:
    """The pages that an event takes as FREE ones, with their groups."""
    if isinstance(event, Allocated):
        yield from enumerate(event.pages)
    elif isinstance(event, Resumed):
        yield from enumerate(event.restored)
    elif isinstance(event, RolledBack):
        for link in event.copies:
            yield int(link[0]), link[3:]


def event_group(event: Event) -> int:
    """The group of an event that has one."""
    group: int = getattr(event, "group", 0)
    return group
