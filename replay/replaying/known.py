"""What of a log can be followed: the states that lie in it, and the kinds of events it may hold."""

from __future__ import annotations

from collections.abc import Iterable

from kvlife.errors import EventError, LogCorrupt, LogError
from kvlife.events import EVENT_TYPES, Recorded
from kvlife.ledger import FrozenState, Ledger
from kvlife.log import LogRun

KNOWN_KINDS = frozenset(EVENT_TYPES)


def known_states(run: LogRun) -> list[int]:
    """The seqs before which the state is known: the beginning, where the log has it, snapshots."""
    begins = [0] if run.begins_at == 0 else []
    return begins + [seq for seq in run.snapshots if seq >= max(run.begins_at, 1)]


def restored(run: LogRun, state: FrozenState, seq: int) -> Ledger:
    """The ledger of the snapshot of a seq; raises `LogCorrupt` where it is none of this state."""
    try:
        ledger = Ledger.restore(run.header.config, state)
    except LogError as error:
        raise LogCorrupt(f"{run.path}: snapshot of seq {seq}: {error}") from error
    if ledger.next_seq != seq:
        raise LogCorrupt(
            f"{run.path}: the snapshot of seq {seq} is the state before seq {ledger.next_seq}"
        )
    return ledger


def refuse_unknown(group: Iterable[Recorded]) -> None:
    """Raise `EventError` for an event of a kind that this version has no class for."""
    for item in group:
        if type(item.event) not in KNOWN_KINDS:
            raise EventError(
                f"seq {item.seq}: {item.event} is of a kind that this kvlife does not know: read it"
                " with a newer one, or use --salvage to go on from the next snapshot"
            )
