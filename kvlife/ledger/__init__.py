"""The ledger: columns, the fold over events, snapshots and digests."""

from kvlife.ledger.allocating import derive_allocated
from kvlife.ledger.books import OpenStep, Pin, Session, Waiting
from kvlife.ledger.change import Change
from kvlife.ledger.deriving import derive
from kvlife.ledger.hosting import HostCopy, holding, kept_pages
from kvlife.ledger.lane import Lane
from kvlife.ledger.ledger import EMPTY, MEMBERSHIP_BITS, Ledger
from kvlife.ledger.renaming import Names, renamed
from kvlife.ledger.rows import UNBOUNDED, RowColumns, RowState
from kvlife.ledger.snapshot import FrozenState, LedgerSnapshot, state_digest
from kvlife.ledger.spaces import PageSpace, PageState

__all__ = [
    "EMPTY",
    "MEMBERSHIP_BITS",
    "UNBOUNDED",
    "Change",
    "FrozenState",
    "HostCopy",
    "Lane",
    "Ledger",
    "LedgerSnapshot",
    "Names",
    "OpenStep",
    "PageSpace",
    "PageState",
    "Pin",
    "RowColumns",
    "RowState",
    "Session",
    "Waiting",
    "derive",
    "derive_allocated",
    "holding",
    "kept_pages",
    "renamed",
    "state_digest",
]
