"""What `change_pages` can do to a page."""

from __future__ import annotations

import enum


class Transition(enum.IntEnum):
    """A change of pages that touches no table."""

    PUBLISH = 0
    EVICT = 1
    PIN = 2
    UNPIN = 3
