"""`DevicePools`: the device state and the KV buffers of every group, as an engine drives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvlife.errors import ConfigError
from kvlife.pools.contract import Pools

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvlife.events import Event
    from kvlife.ledger import Change, Ledger
    from kvlife.pools.contract import I32, DeviceFinding, Slots


class DevicePools(Pools):
    """Page tables, states and KV buffers on one device, changed by events alone.

    `layouts` maps the name of each cache group to its `KvLayout`; one layout alone serves all
    groups, None makes no KV buffers (tables, states and slots only). `content="check"` digests
    wholly committed pages and holds them to it (debug), `poison` is a byte that freed pages are
    filled with. One object serves one engine.
    """

    def __init__(
        self,
        layouts: Mapping[str, object] | object | None = None,
        *,
        device: str = "cpu",
        content: str | None = None,
        poison: int | None = None,
    ) -> None:
        """Remember what is wanted; the buffers are made when an engine attaches the pools."""
        self.device = device
        self._ledger: Ledger | None = None
        self._wanted = (layouts, content, poison)

    @property
    def ledger(self) -> Ledger:
        """The ledger that the pools follow."""
        if self._ledger is None:
            raise ConfigError("these pools belong to no engine yet: give them to one first")
        return self._ledger

    def attach(self, ledger: Ledger) -> None:
        """Make the buffers; raises `ConfigError` where they do not fit."""
        self._ledger = ledger

    def apply(self, event: Event, change: Change, seq: int) -> None:
        """Follow an event: content checks before, copies, tables and states, content checks after.

        What is let go still has its content until the state is applied:

            content.before(event, change, seq)   digests of what is let go, evicted, matched, copied
            copies (roll-back, backup)           gather_pages, copy_pages
            freed = state.apply(...)             per group the page ids that became FREE (0 = none)
            restores                             scatter_pages
            fill_pages(freed)                    where poisoned
            content.after(event, change, seq)    digests of what was wholly committed
        """

    def slots(self, group: int, rows: I32, low: I32, high: I32) -> Slots:
        """Slots of positions [low, high) of each row in a group, int32 on the device."""
        raise NotImplementedError

    def last_slots(self, group: int, rows: I32) -> Slots:
        """The slot of the last allocated position of each row in a group."""
        raise NotImplementedError

    def audit(self) -> None:
        """Begin to hold the device's whole state against the ledger's."""

    def drain(self, *, wait: bool = False) -> Sequence[DeviceFinding]:
        """What was found since it was last asked, at most one step late."""
        return ()

    def buffers(self, group: str | None = None) -> object:
        """The `KvBuffers` of a named group, or of the base group."""
        raise NotImplementedError
