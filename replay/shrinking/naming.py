"""The pages that events name, and those that they take."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kvlife.events import Allocated, Event, Released, Resumed, Retracted, RolledBack
from kvlife.ledger import EMPTY

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


def host_pages_named(event: Event) -> I32:
    """The host pages that an event names: those of a backup, or those given back."""
    if isinstance(event, Retracted) and event.backup is not None:
        return event.backup
    return event.host_pages if isinstance(event, Released) else EMPTY


def event_group(event: Event) -> int:
    """The group of an event that has one."""
    group: int = getattr(event, "group", 0)
    return group
