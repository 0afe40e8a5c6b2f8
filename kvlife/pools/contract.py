"""What an observer asks of device pools: to apply each event after the ledger has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kvlife.events import Event
    from kvlife.ledger import Change


class Pools(Protocol):
    """Buffers on a device that follow the events; an error from here closes the engine."""

    def apply(self, event: Event, change: Change) -> None:
        """Do on the device what the event says; `change` names the table entries concerned."""
