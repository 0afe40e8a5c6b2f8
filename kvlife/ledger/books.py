"""What the ledger keeps beside the columns: waiting records, sessions, pins and open steps."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]


@attrs.frozen(eq=False)
class Waiting:
    """A retracted request: its lengths at the time, in tokens, and its host backup or None."""

    prompt_len: int
    committed_len: int
    namespace: int
    backup: I32 | None
    seq: int


@attrs.frozen
class Session:
    """A session that owns a row; `rid` is the request of the turn that runs, or None."""

    row: int
    rid: str | None
    kept_len: int
    protected_len: int
    num_turns: int
    seq: int


@attrs.frozen(eq=False)
class Pin:
    """A reader or writer outside the ledger, and the pages it holds."""

    kind: str
    writes: bool
    owner: str | None
    group: int
    pages: I32
    seq: int
    time_ns: int


@attrs.define(eq=False)
class OpenStep:
    """A dispatched step: its rows, their allocated lengths then, and pages pinned under it."""

    rows: Index
    noted: I32
    seq: int
    pinned: list[tuple[int, I32]] = attrs.field(factory=list)
