"""Commands of what is in flight: steps on the device, and pins of readers and writers outside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvlife.engine.allocation import AllocationCommands
from kvlife.engine.arguments import as_id, as_length, as_pages, is_name
from kvlife.engine.batch import Batch
from kvlife.engine.core import command
from kvlife.engine.publishing import PublishingCommands
from kvlife.errors import BadArgument, PinRefused, StepOrder, UnknownRequest
from kvlife.events import Pinned, StepDispatched, StepSettled, Unpinned
from kvlife.ledger import EMPTY, PageState, RowState
from kvlife.ledger.entries import rows_entries


class FlightCommands(AllocationCommands, PublishingCommands):
    """dispatch, settle, pin, unpin, post_unpin."""

    @command
    def dispatch(self, step: int, which: Batch | Sequence[str]) -> None:
        """A step was handed to the device: it reads these requests' KV and writes up to allocated.

        Step numbers grow. Raises `StepOrder`, `StaleBatch`, `PinRefused` for pages being written.
        """
        rows = self._rows(which)
        step = as_length("step", step, 0, (1 << 63) - 1)
        newest = self._newest_step
        if newest is not None and step <= newest:
            raise StepOrder(f"step {step} was dispatched after step {newest}: numbers must grow")
        if self.ledger.pins:
            index = self.ledger.index_of(rows)
            allocated = self.ledger.rows.allocated.take(index)
            self._refuse_writing(index, np.zeros_like(allocated), allocated, "dispatched")
        self.step = step
        self._record((StepDispatched(step, rows),))
        self._newest_step = step

    @command
    def settle(self, step: int) -> None:
        """The step's result is in. Steps settle in the order of dispatch; rows that drained go."""
        ledger, step = self.ledger, as_length("step", step, 0, (1 << 63) - 1)
        oldest = next(iter(ledger.steps), None)
        if oldest is None or step != oldest:
            raise StepOrder(
                f"step {step} was to settle, the oldest in flight is"
                f" {'none' if oldest is None else oldest}: settle in the order of dispatch"
            )
        opened = ledger.steps[step].rows
        states = ledger.rows.state.take(opened)
        if RowState.DRAINING not in states.tobytes():
            self._record((StepSettled(step, EMPTY, ledger.no_pages),))
            return
        drained = opened[(states == RowState.DRAINING) & (ledger.rows.in_flight[opened] == 1)]
        allocated = ledger.rows.allocated.take(drained)
        at = rows_entries(ledger, drained, np.zeros_like(allocated), allocated)
        # A row that drains references what it held; DRAINING rows keep their tables until now.
        pages = ledger.pages_at(at)
        self._record((StepSettled(step, drained.astype(np.int32), pages),))
        for row in drained.tolist():
            self._after_row(row)

    @command
    def pin(
        self,
        pin_id: str,
        pages: object,
        kind: str,
        *,
        writes: bool = False,
        owner: str | None = None,
        group: str | None = None,
    ) -> None:
        """Keep pages from being reused while something outside reads or writes them.

        A pin with an `owner` ends with that request at the latest. Raises `PinRefused` for a pin
        id in use, and for pages that nobody holds.
        """
        pin_id, kind = as_id("a pin id", pin_id), as_id("the kind of a pin", kind)
        if type(writes) is not bool:
            raise BadArgument(f"writes is True or False, got {writes!r}")
        if pin_id in self.ledger.pins:
            raise PinRefused(f"pin {pin_id!r} is in use: choose another id, or unpin it")
        if owner is not None:
            owner = as_id("the owner of a pin", owner)
            if self.ledger.record(owner) is None:
                raise UnknownRequest(self._why_unknown(owner))
        idx = self.ledger.layout.base if group is None else self._group_idx(group)
        space = self.ledger.spaces[self.ledger.layout.groups[idx].space_idx]
        pinned = as_pages(pages, space.num_pages)
        idle = pinned[space.state.take(pinned) == PageState.FREE]
        if idle.size:
            raise PinRefused(f"page {idle[0]} is FREE: only pages that are held can be pinned")
        foreign = pinned[space.group.take(pinned) != idx]
        if foreign.size:
            owning = self.ledger.layout.groups[int(space.group[foreign[0]])].name
            raise PinRefused(f"page {foreign[0]} belongs to group {owning!r}: name that one")
        self._record((Pinned(pin_id, kind, writes, owner, idx, pinned),))

    @command
    def unpin(self, pin_id: str) -> None:
        """The reader or writer is done; quarantined pages whose last pin this was become FREE."""
        pin = self.ledger.pins.get(pin_id) if is_name(pin_id) else None
        if pin is None:
            raise PinRefused(f"no pin {pin_id!r}: it has ended, or never began")
        if pin_id in self._copies:
            raise PinRefused(f"pin {pin_id!r} is the engine's own: it ends with its copy")
        self._record((Unpinned(pin_id, pin.group, pin.pages),))

    def post_unpin(self, pin_id: str) -> None:
        """As `unpin`, from any thread: it happens before the engine's next command."""
        self._posted.append(pin_id)
