"""The states of a page on the device: the same numbers as in the ledger, as int32."""

from __future__ import annotations

import enum

import torch


class PageState(enum.IntEnum):
    """The state of a page; RESERVED is page 0 of each space, which is never handed out."""

    FREE = 0
    PRIVATE = 1
    CACHED = 2
    QUARANTINED = 3
    RESERVED = 4


# Four bytes a page, since GPUs compare and swap no single byte: where several entries of one launch
# name one page, exactly one of them makes each transition.
STATE_DTYPE = torch.int32
