"""`DevicePools`: the device state and the KV buffers of every group, as an engine drives them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import torch

from kvlife.errors import ConfigError
from kvlife.events import (
    Allocated,
    Committed,
    Marked,
    Pinned,
    Resized,
    RolledBack,
    StepDispatched,
    Unpinned,
)
from kvlife.kernels.audit_refs import audit_refs
from kvlife.kernels.copy_pages import copy_pages
from kvlife.kernels.dispatch import KernelError, uses_triton
from kvlife.kernels.fill_pages import fill_pages
from kvlife.kernels.slots_of import slots_of
from kvlife.pools.accusing import CONTENT
from kvlife.pools.agreement import AGREES, Agreement, ViolationWatch
from kvlife.pools.backup import HostBackup
from kvlife.pools.content import PageContent
from kvlife.pools.contract import I32, DeviceFinding, Pools
from kvlife.pools.decoding import DecodeSteps
from kvlife.pools.device_state import DeviceState
from kvlife.pools.following import EventFold, Freed
from kvlife.pools.graphs import capture_graph
from kvlife.pools.group_buffers import (
    Layouts,
    layouts_by_group,
    make_buffers,
    refuse_beyond_device,
    resized,
)
from kvlife.pools.uploading import Uploads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from kvlife.config import Layout
    from kvlife.events import Event
    from kvlife.ledger import Change, Ledger
    from kvlife.pools.buffers import KvBuffers

# Events after which the slots of the last decode step still are those of the last tokens.
_KEEPS_SLOTS = frozenset((Committed, StepDispatched, Marked, Pinned, Unpinned))


class DevicePools(Pools):
    """Page tables, states and KV buffers on one device, changed by events alone.

    `layouts` maps the name of each cache group to its `KvLayout`; one layout alone serves all
    groups, None makes no KV buffers (tables, states and slots only). `content="check"` digests
    wholly committed pages and holds them to it (debug), `poison` is a byte that freed pages are
    filled with. One object serves one engine, on the current stream of its device.
    """

    def __init__(
        self,
        layouts: Layouts = None,
        *,
        device: torch.device | str = "cpu",
        content: str | None = None,
        poison: int | None = None,
    ) -> None:
        """Remember what is wanted; the buffers are made when an engine attaches the pools."""
        self.device = _device(device)
        self._checks_content = _is_check(content, layouts)
        self.checks: tuple[str, ...] = (AGREES, CONTENT) if self._checks_content else (AGREES,)
        self._wanted = layouts
        self._poison = _byte(poison)
        self._ledger: Ledger | None = None

    def attach(self, ledger: Ledger) -> None:
        """Make the buffers; raises `ConfigError` where they do not fit, or are another engine's."""
        # What is made here is written to later, in inference mode or outside it.
        with torch.inference_mode(mode=False):
            self._attach(ledger)

    def _attach(self, ledger: Ledger) -> None:
        if self._ledger is not None and self._ledger.next_seq:
            raise ConfigError("these pools serve an engine already: make new ones for this engine")
        layout = ledger.layout
        self._layouts = layouts_by_group(self._wanted, layout)
        refuse_beyond_device(self._layouts, layout, self.device)
        uploads = Uploads(self.device)
        self.state = DeviceState(layout, self.device)
        self.state.load(ledger)
        try:
            captures = uses_triton(self.state.tables) and self.device.type == "cuda"
        except KernelError as error:
            raise ConfigError(f"no pools on {self.device}: {error}") from error
        self._buffers = make_buffers(self._layouts, layout, self.device, self.state.violations)
        self._backup: HostBackup | None = None
        if layout.host_pages and self._buffers:
            self._backup = HostBackup(self._buffers, layout.host_pages, uploads)
        self._fold = EventFold(self.state, ledger, uploads)
        capture = functools.partial(capture_graph, self.device) if captures else None
        self._steps = DecodeSteps(self.state, uploads, capture)
        self._content: PageContent | None = None
        if self._checks_content:
            self._content = PageContent(
                ledger, self._buffers, uploads, poisons=self._poison is not None
            )
        self._agreement = Agreement(self.state, ledger)
        self._watch = ViolationWatch(self.state.violations)
        self._found: list[DeviceFinding] = []
        self._uploads = uploads
        self._ledger = ledger

    @property
    def ledger(self) -> Ledger:
        """The ledger that the pools follow."""
        if self._ledger is None:
            raise ConfigError("these pools serve no engine yet: give them to one first")
        return self._ledger

    def buffers(self, group: str | None = None) -> KvBuffers:
        """The KV buffers of a named group, or of the base group; other ones after a resize."""
        layout = self.ledger.layout
        idx = layout.base
        if group is not None:
            names = [known.name for known in layout.groups]
            if group not in names:
                raise ConfigError(f"no cache group {group!r}: the groups are {', '.join(names)}")
            idx = names.index(group)
        if idx not in self._buffers:
            raise ConfigError("these pools were made without KV layouts: give them some")
        return self._buffers[idx]

    def refuse_layout(self, layout: Layout) -> None:
        """Raise `ConfigError` where page spaces of these sizes would not fit."""
        refuse_beyond_device(self._layouts, layout, self.device, self.ledger.layout)

    def apply(self, event: Event, change: Change, seq: int) -> None:
        """Follow an event: what is let go still has its content until the state has followed.

        content | copies (roll-back, backup) | tables and states | restores | poison | content
        """
        if seq >= self.ledger.next_seq:
            raise ConfigError("an event of another engine: give each engine pools of its own")
        content = self._content
        if content is None:
            self._follow(event, change, seq)
            return
        if event.__class__ is Allocated:
            self._found += content.begin()
        content.before(event, change, seq)
        self._follow(event, change, seq)
        if event.__class__ is Resized:
            content.buffers = self._buffers
        content.after(event, change, seq)

    def _follow(self, event: Event, change: Change, seq: int) -> None:
        kind = event.__class__
        if kind is Allocated:
            self._found += self._watch.begin()
            if change.one_each and self._steps.run(change, seq):
                return
        if kind not in _KEEPS_SLOTS:
            self._steps.forget_slots()
        if kind is Resized:
            with torch.inference_mode(mode=False):
                self._resize(event, change, seq)
            return
        self._copy_before(event, change)
        freed = self._fold.apply(event, change, seq)
        if self._backup is not None and change.restored is not None:
            self._backup.restore(change.restored)
        if self._poison is not None and freed:
            self._fill(freed, seq)

    def _resize(self, event: Event, change: Change, seq: int) -> None:
        self._fold.apply(event, change, seq)
        self._steps.forget()
        self._buffers = resized(self._buffers, self.ledger.layout)
        if self._backup is not None:
            self._backup.use(self._buffers)

    def _copy_before(self, event: Event, change: Change) -> None:
        if isinstance(event, RolledBack) and event.copies.size and self._buffers:
            self._copy_shared(event.copies)
        if self._backup is not None:
            if change.saved is not None:
                self._backup.save(change.saved)
            elif isinstance(event, Pinned) and event.kind == "copy":
                self._backup.note(event)
            elif isinstance(event, Unpinned):
                self._backup.forget(event.pin_id)

    def _copy_shared(self, copies: I32) -> None:
        """The content of shared pages goes to the new ones that rows get in their place."""
        for group, _row, shared, new in copies.tolist():
            # A faulty event may name the reserved page, or copy a page to itself.
            if shared and new and shared != new:
                buffers = self._buffers[group]
                source, target = self._uploads.several(
                    np.array([shared], np.int32), np.array([new], np.int32)
                )
                copy_pages(buffers.arena, buffers.planes, source, target)

    def _fill(self, freed: list[Freed], seq: int) -> None:
        assert self._poison is not None  # the caller looked
        for group, pages in freed:
            buffers = self._buffers.get(group)
            if buffers is not None:
                fill_pages(
                    buffers.arena, buffers.planes, pages, self._poison,
                    violations=buffers.violations, seq=seq, group=group,
                )  # fmt: skip

    def slots(self, group: int, rows: I32, low: I32, high: I32) -> Tensor:
        """Slots of positions [low, high) of each row in a group, int32 on the device."""
        counts = high - low
        layout = self.ledger.layout.groups[group]
        offsets = np.zeros(rows.size + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        there = self._uploads.several(rows, low, high, offsets)
        slots: Tensor = slots_of(
            self.state.groups[group].table, layout.table_width, layout.page_size, *there,
            total=int(offsets[-1]),
        )  # fmt: skip
        if self._content is not None:
            self._content.stores.issued(slots, rows, counts)
        return slots

    def last_slots(self, group: int, rows: I32) -> Tensor:
        """The slot of the last allocated position of each row in a group."""
        columns = self.ledger.rows
        index = self.ledger.index_of(rows)
        slots = self._steps.last_slots(group, index)
        if slots is not None:
            if self._content is not None:
                self._content.stores.issued(slots, rows)
            return slots
        high = columns.lane(index).allocated
        return self.slots(group, rows, np.maximum(high - 1, 0), high)

    def audit(self) -> None:
        """Begin to hold the device's whole state against the ledger's, and its references too."""
        state = self.state
        audit_refs(
            state.tables, state.described, state.state, state.refs, state.pins, state.allocated,
            state.floor, state.cursors,
            violations=state.violations, seq=max(self.ledger.next_seq - 1, 0),
        )  # fmt: skip
        self._found += self._agreement.begin()
        if self._content is not None:
            self._content.audit()

    def drain(self, *, wait: bool = False) -> Sequence[DeviceFinding]:
        """What was found since it was last asked, at most one step late; with `wait`, all of it."""
        content = self._content
        if wait:
            self._found += self._watch.begin()
            self._found += [] if content is None else content.begin()
        found = self._found + self._watch.outcome(wait=wait) + self._agreement.outcome(wait=wait)
        if content is not None:
            found += content.outcome(wait=wait)
        if found:
            self._found = []
        return found

    def notes(self, *, wait: bool = False) -> Sequence[Event]:
        """The digests that were taken, for the log; at most one step late, with `wait` all."""
        return () if self._content is None else self._content.notes(wait=wait)

    def store(
        self,
        layer: int,
        k: Tensor,
        v: Tensor,
        slots: Tensor,
        *,
        group: str | None = None,
        rows: Tensor | None = None,
    ) -> None:
        """Write the KV of new tokens of a layer to their slots, in the base group or a named one.

        As `buffers(group).store`. With `content="check"` each slot must lie on a page that its row
        holds: `rows` int32 has the row of each slot, and may be left out for a tensor of slots as
        the engine gave it out; slots of other tensors must lie on pages that some row holds.
        """
        buffers = self.buffers(group)
        if self._content is not None:
            self._content.stores.check(buffers.group, slots, rows)
        buffers.store(layer, k, v, slots)

    def copy_done(self, pin_id: str) -> bool:
        """Whether the copy under a pin is complete."""
        return self._backup is None or self._backup.is_done(pin_id)

    def finish_copies(self) -> None:
        """Wait until all copies are complete."""
        if self._backup is not None:
            self._backup.finish()


def _device(device: torch.device | str) -> torch.device:
    try:
        # "cuda" alone is the current device, and stays the one that it is now.
        return torch.empty(0, device=torch.device(device)).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ConfigError(f"no device {device!r} for the pools: {error}") from error


def _is_check(content: str | None, layouts: Layouts) -> bool:
    if content not in (None, "check"):
        raise ConfigError(f"content is checked with 'check', or not with None; got {content!r}")
    if content is not None and layouts is None:
        raise ConfigError("contents are to be checked of pools without KV layouts: give them some")
    return content is not None


def _byte(poison: object) -> int | None:
    if poison is None:
        return None
    if not isinstance(poison, int) or isinstance(poison, bool) or not 0 <= poison < 256:
        raise ConfigError(f"poison is one byte, from 0 to 255, or None; got {poison!r}")
    return poison
