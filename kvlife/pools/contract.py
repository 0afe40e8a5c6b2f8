"""What an observer asks of device pools: to follow each event, and to say what is amiss there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import attrs
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvlife.config import Layout
    from kvlife.events import Event
    from kvlife.ledger import Change, Ledger

I32 = npt.NDArray[np.int32]

# Slots of tokens, int32: a numpy array where no pools are attached, a tensor on their device else.
Slots = Any  # Any: torch is not loaded where no pools are, and a tensor shares no type with numpy


@attrs.frozen(kw_only=True)
class DeviceFinding:
    """What was found on the device: the invariant that it breaks, and what shows it.

    `seq` is that of the event at which it was found; of an audit, the last one applied then. An
    echo says what the checker finds by itself of an event, or a state, at fault; where it did, the
    device and the ledger agree.
    """

    invariant: str
    seq: int
    evidence: dict[str, object]
    is_echo: bool = False


class Pools(Protocol):
    """Buffers on a device that follow the events; an error from here closes the engine.

    A class that derives from this one need only `apply`: the other methods answer as pools do that
    hold no slots, find nothing and copy nothing. `checks` are the invariants that these pools
    look after by themselves; their findings come out of `drain`.
    """

    checks: tuple[str, ...] = ()

    def attach(self, ledger: Ledger) -> None:
        """Make the buffers for this ledger, in the state in which it is; once, before any event.

        Raises `ConfigError` where they do not fit, or cannot serve its groups.
        """

    def refuse_layout(self, layout: Layout) -> None:
        """Raise `ConfigError` where page spaces of these sizes would not fit; nothing changes."""

    def apply(self, event: Event, change: Change, seq: int) -> None:
        """Do on the device what the event says, after the ledger has applied it."""

    # What the methods below are given is for those that override them.
    def slots(self, group: int, rows: I32, low: I32, high: I32) -> Slots | None:  # noqa: ARG002
        """Slots of positions [low, high) of each row in a group, in row order.

        None where these pools have no slots of their own: then the ledger's are given.
        """
        return None

    def last_slots(self, group: int, rows: I32) -> Slots | None:  # noqa: ARG002 # for overriders
        """The slot of the last allocated position of each row in a group; None as in `slots`."""
        return None

    def audit(self) -> None:
        """Begin to hold the device's whole state against the ledger's; `drain` has the outcome."""

    # As above.
    def drain(self, *, wait: bool = False) -> Sequence[DeviceFinding]:  # noqa: ARG002
        """What was found since it was last asked, at most one step late; with `wait`, all of it."""
        return ()

    def notes(self, *, wait: bool = False) -> Sequence[Event]:  # noqa: ARG002 # for overriders
        """Events that the pools want to stand in the log; the observer records them, each once.

        They stand behind the group of events that they are about, at most one step late; with
        `wait`, all of them are given.
        """
        return ()

    def copy_done(self, pin_id: str) -> bool:  # noqa: ARG002 # for overriders
        """Whether the copy under this pin of kind "copy" is complete.

        A retraction with a backup is recorded as `Pinned` (reads; one for each group that copies
        pages), then `Retracted`, whose `change.saved` says what is copied where. A resumption that
        restores is `Resumed`, whose `change.restored` says it, then `Pinned` (writes). The engine
        asks before its next commands, and ends the pin. Copies run in the order of their events.
        """
        return True

    def finish_copies(self) -> None:
        """Wait until every copy that has begun is complete; then `copy_done` says so of each."""
