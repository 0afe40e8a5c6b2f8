"""What is noted of the state at each border of the axis, and counted between two of them."""

from __future__ import annotations

import enum

import numpy as np
import numpy.typing as npt

from kvlife.config import Layout
from kvlife.ledger import Ledger, PageSpace, PageState, RowState
from kvlife.replay.output.quoting import printable

I64 = npt.NDArray[np.int64]

HOST = "the host"


class Count(enum.IntEnum):
    """What is counted in each column."""

    ADMITTED = 0
    RESUMED = 1
    FINISHED = 2
    ABORTED = 3
    RETRACTED = 4
    EVICTED_PAGES = 5
    PROMPT_TOKENS = 6
    HIT_TOKENS = 7
    NOTES = 8


class Level(enum.IntEnum):
    """What is read off the state at each border."""

    NEXT_SEQ = 0
    RUNNING = 1
    WAITING = 2
    IDLE_SESSIONS = 3
    DRAINING = 4
    PINS = 5
    STEPS = 6
    ALLOCATED_TOKENS = 7
    COMMITTED_TOKENS = 8


class PageUse(enum.IntEnum):
    """A page's state as the report tells it: CACHED with and without rows that use it apart."""

    PRIVATE = 0
    CACHED_USED = 1
    CACHED_IDLE = 2
    QUARANTINED = 3
    FREE = 4


# PageUse of state * 2 + (refs > 0); page 0 is in no sum.
_USE_OF = np.full(2 * len(PageState), len(PageUse), np.int64)
_USE_OF[2 * PageState.FREE : 2 * PageState.FREE + 2] = PageUse.FREE
_USE_OF[2 * PageState.PRIVATE : 2 * PageState.PRIVATE + 2] = PageUse.PRIVATE
_USE_OF[2 * PageState.CACHED : 2 * PageState.CACHED + 2] = PageUse.CACHED_IDLE, PageUse.CACHED_USED
_USE_OF[2 * PageState.QUARANTINED : 2 * PageState.QUARANTINED + 2] = PageUse.QUARANTINED


def page_uses(space: PageSpace) -> I64:
    """How many pages of a space are in each use."""
    codes = space.state * np.uint8(2) + (space.refs > 0)
    counts = np.bincount(codes, minlength=_USE_OF.size)
    return np.bincount(_USE_OF, weights=counts, minlength=len(PageUse) + 1)[:-1].astype(np.int64)


def names_of_spaces(layout: Layout) -> list[str]:
    """The names of the page spaces, and last the host where it has pages."""
    names = [printable(space.name) for space in layout.spaces]
    return [*names, *([HOST] if layout.host_pages else [])]


def spaces_of(ledger: Ledger) -> list[PageSpace]:
    """The page spaces, and last the host's where there is one."""
    return [*ledger.spaces, *(() if ledger.host is None else (ledger.host,))]


class Columns:
    """Levels at `num_columns` + 1 borders, counts in `num_columns` columns.

    `levels[level, border]`, `pages[space][use, border]` (the host's last), `counts[count, column]`.
    """

    def __init__(self, num_columns: int, num_spaces: int) -> None:
        self.num_columns = num_columns
        self.levels: I64 = np.zeros((len(Level), num_columns + 1), np.int64)
        self.pages: list[I64] = [
            np.zeros((len(PageUse), num_columns + 1), np.int64) for _ in range(num_spaces)
        ]
        self.counts: I64 = np.zeros((len(Count), num_columns), np.int64)

    def note(self, first: int, stop: int, ledger: Ledger) -> None:
        """The state at the borders [first, stop): no event lies between them."""
        for noted, space in zip(self.pages, spaces_of(ledger), strict=True):
            noted[:, first:stop] = page_uses(space)[:, np.newaxis]
        rows = ledger.rows
        # Rows that are FREE have no lengths.
        self.levels[:, first:stop] = np.array(
            (
                ledger.next_seq,
                len(ledger.requests),
                len(ledger.waiting),
                sum(session.rid is None for session in ledger.sessions.values()),
                int(np.count_nonzero(rows.state == RowState.DRAINING)),
                len(ledger.pins),
                len(ledger.steps),
                int(rows.allocated.sum(dtype=np.int64)),
                int(rows.committed.sum(dtype=np.int64)),
            ),
            np.int64,
        )[:, np.newaxis]
