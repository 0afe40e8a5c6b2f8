"""What commands return: small frozen records."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.records import RetractionBackup

I32 = npt.NDArray[np.int32]


@attrs.frozen(eq=False)
class Hit:
    """What `match` found, in tokens: `matched_len` in the index, `prefix_len` to be locked.

    `pages` are the cached pages of each group over [0, prefix_len); 0 where a window page is gone.
    """

    matched_len: int
    prefix_len: int
    pages: tuple[I32, ...]


@attrs.frozen
class Admission:
    """An admitted or resumed request: its row, what the index had, and what was locked (tokens).

    `restored_len` is what it has committed now: `prefix_len`, and more where a backup was restored.
    `why_recomputed` says why a backup was there and could not be, else it is None.
    """

    rid: str
    row: int
    matched_len: int
    prefix_len: int
    restored_len: int
    why_recomputed: str | None = None


@attrs.frozen
class Retraction:
    """A retracted request: where its backup lies, or None and why it will be computed again."""

    rid: str
    backup: RetractionBackup | None
    why_not: str | None


@attrs.frozen
class SessionTurn:
    """A restored session: the row, what was asked to be kept and what could be (tokens).

    `kept_len` is below `asked_len` where a window's pages are gone, or where a rewind into a
    published page has to begin at that page.
    """

    rid: str
    row: int
    asked_len: int
    kept_len: int
