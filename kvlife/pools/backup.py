"""The host's copy of what retracted requests keep: pages gathered there, and scattered back.

A host page holds one page of any group, over all its layers; a row of the arena is as long as the
largest. On a GPU the arena lies in pinned memory, which the device writes and reads by itself, in
the order of its stream: a host page that is given back and taken again is not overwritten before
it was read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kvlife.errors import ConfigError
from kvlife.kernels.gather_pages import gather_pages
from kvlife.kernels.scatter_pages import scatter_pages
from kvlife.pools.buffers import free_bytes

if TYPE_CHECKING:
    from kvlife.events import Pinned
    from kvlife.ledger.hosting import HostCopy
    from kvlife.pools.buffers import KvBuffers
    from kvlife.pools.uploading import Uploads

I32 = npt.NDArray[np.int32]

# What a copy by way of the device's own memory takes there at most, where nothing can be pinned.
_STAGING_BYTES = 1 << 28


class NotPinnedWarning(UserWarning):
    """The host's pages lie in plain memory: copies wait for the device."""


def host_bytes(num_pages: int, page_bytes: int) -> int:
    """Bytes of the arena of `num_pages` host pages, refused where the host has not as much."""
    wanted, present = num_pages * page_bytes, free_bytes(torch.device("cpu"))
    if wanted > present:
        raise ConfigError(
            f"host_pages {num_pages} of {page_bytes} bytes take {wanted} bytes, and the host has"
            f" {present}: lower host_pages"
        )
    return wanted


class HostBackup:
    """Host pages for the groups' buffers; copies run on the current stream of their device."""

    def __init__(self, buffers: Mapping[int, KvBuffers], num_pages: int, uploads: Uploads) -> None:
        """Make the arena; raises `ConfigError` where the host has not enough memory."""
        self._buffers = buffers
        self._uploads = uploads
        row_bytes = max(group.planes.page_bytes for group in buffers.values())
        host_bytes(num_pages, row_bytes)
        self._is_gpu = uploads.device.type != "cpu"
        self.arena = self._make(num_pages, row_bytes)
        self._done: dict[str, torch.cuda.Event] = {}
        self._begun: list[str] = []
        self._latest: torch.cuda.Event | None = None

    def _make(self, num_pages: int, row_bytes: int) -> Tensor:
        if self._is_gpu:
            try:
                return torch.zeros((num_pages, row_bytes), dtype=torch.uint8, pin_memory=True)
            except RuntimeError as error:
                warnings.warn(
                    f"the host's {num_pages} pages cannot be pinned ({error}): they lie in plain"
                    " memory, and every copy waits for the device",
                    NotPinnedWarning,
                    stacklevel=2,
                )
        return torch.zeros((num_pages, row_bytes), dtype=torch.uint8)

    def use(self, buffers: Mapping[int, KvBuffers]) -> None:
        """Copy to and from these buffers from now on."""
        self._buffers = buffers

    def save(self, copy: HostCopy) -> None:
        """Gather pages to the host, before the event that lets them go is followed."""
        self._copy(copy, gather_pages)
        self._record()

    def restore(self, copy: HostCopy) -> None:
        """Scatter pages from the host, after the event that takes them was followed."""
        self._copy(copy, scatter_pages)
        self._record()

    def note(self, pin: Pinned) -> None:
        """A pin of a copy: one that reads comes before its copy, one that writes after it."""
        if not self._is_gpu:
            return
        if not pin.writes:
            self._begun.append(pin.pin_id)
        if self._latest is not None:
            self._done[pin.pin_id] = self._latest

    def forget(self, pin_id: str) -> None:
        """A pin is gone; whether its copy is complete is not asked any more."""
        self._done.pop(pin_id, None)
        if pin_id in self._begun:
            self._begun.remove(pin_id)

    def is_done(self, pin_id: str) -> bool:
        """Whether the copy under a pin is complete."""
        done = self._done.get(pin_id)
        return done is None or done.query()

    def finish(self) -> None:
        """Wait until all copies are complete."""
        for done in self._done.values():
            done.synchronize()

    def _record(self) -> None:
        """All that is on the stream by now lies before the end of these copies."""
        if not self._is_gpu:
            return
        self._latest = torch.cuda.Event()
        self._latest.record(torch.cuda.current_stream(self._uploads.device))
        for pin_id in self._begun:
            self._done[pin_id] = self._latest
        self._begun.clear()

    def _copy(self, copy: HostCopy, kernel: Callable[..., None]) -> None:
        # A faulty event may name too few host pages, or one twice, or the reserved page.
        num = min(copy.pages.size, copy.host_pages.size)
        pages, rows = copy.pages[:num], copy.host_pages[:num]
        fit = (pages != 0) & (rows != 0) & _first_of_each(rows)
        for group, buffers in self._buffers.items():
            mine = np.flatnonzero(fit & (copy.groups[:num] == group))
            mine = mine[_first_of_each(pages[mine])]
            if mine.size:
                self._move(kernel, buffers, pages[mine], rows[mine])

    def _move(self, kernel: Callable[..., None], buffers: KvBuffers, pages: I32, rows: I32) -> None:
        arena, planes = buffers.arena, buffers.planes
        if not self._is_gpu or self.arena.is_pinned():
            device_pages, device_rows = self._uploads.several(pages, rows)
            kernel(
                arena, planes, device_pages, self.arena, rows=device_rows,
                violations=buffers.violations, group=buffers.group,
            )  # fmt: skip
            return
        at_once = max(_STAGING_BYTES // planes.page_bytes, 1)
        for first in range(0, pages.size, at_once):
            some = self._uploads.one(pages[first : first + at_once])
            at = torch.from_numpy(rows[first : first + at_once].astype(np.int64))
            there = self.arena[at, : planes.page_bytes].to(self._uploads.device)
            kernel(arena, planes, some, there, violations=buffers.violations, group=buffers.group)
            if kernel is gather_pages:
                self.arena[at, : planes.page_bytes] = there.cpu()


def _first_of_each(pages: I32) -> npt.NDArray[np.bool_]:
    """Where a page stands for the first time."""
    first = np.zeros(pages.size, np.bool_)
    first[np.unique(pages, return_index=True)[1]] = True
    return first
