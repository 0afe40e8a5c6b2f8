"""The digests that are kept of pages: on the device, with what the host knows of each beside it."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kvlife.events import Digested

I32 = npt.NDArray[np.int32]


@attrs.define(eq=False)
class KeptDigests:
    """By page: whether a digest is kept, since which event and for whom, and the digest itself."""

    there: npt.NDArray[np.bool_]
    since: npt.NDArray[np.int64]
    owner: npt.NDArray[np.object_]
    digest: Tensor

    @classmethod
    def create(cls, num_pages: int, device: torch.device) -> KeptDigests:
        """No digests."""
        return cls(
            np.zeros(num_pages, np.bool_),
            np.zeros(num_pages, np.int64),
            np.full(num_pages, None, np.object_),
            torch.zeros(num_pages, dtype=torch.int64, device=device),
        )

    def resized(self, num_pages: int) -> KeptDigests:
        """The same for another number of pages."""
        fresh = KeptDigests.create(num_pages, self.digest.device)
        num = min(num_pages, self.there.size)
        for name in ("there", "since", "owner", "digest"):
            getattr(fresh, name)[:num] = getattr(self, name)[:num]
        return fresh

    def pages(self) -> I32:
        """The pages of which a digest is kept."""
        return np.flatnonzero(self.there).astype(np.int32)

    def among(self, pages: I32) -> I32:
        """The distinct ones of these pages of which a digest is kept."""
        pages = np.unique(pages[(pages > 0) & (pages < self.there.size)])
        return pages[self.there[pages]]

    # Any: one name, or one for each page.
    def keep(self, pages: I32, there: Tensor, digests: Tensor, owner: Any, seq: int) -> None:
        """Keep digests, one for each of the pages (`there`: on the device), in place of others."""
        self.there[pages] = True
        self.since[pages] = seq
        self.owner[pages] = owner
        self.digest[there.long()] = digests

    def forget(self, pages: I32) -> None:
        """Keep none of these pages."""
        self.there[pages[pages < self.there.size]] = False

    def believe(self, page: int, digest: int, seq: int) -> None:
        """Take a digest that was found at `seq` to be right, if none was taken after it."""
        if page < self.there.size and self.there[page] and self.since[page] <= seq:
            self.digest[page] = digest


@attrs.frozen(eq=False)
class TakenDigests:
    """Digests of one event on their way to the host; without `done`, they are there."""

    seq: int
    group: int
    pages: I32
    digests: Tensor
    done: torch.cuda.Event | None

    @classmethod
    def send(cls, seq: int, group: int, pages: I32, digests: Tensor) -> TakenDigests:
        """Begin to copy them; nothing waits."""
        if digests.device.type == "cpu":
            return cls(seq, group, pages, digests, None)
        host = torch.empty(digests.shape, dtype=torch.int64, pin_memory=True)
        host.copy_(digests, non_blocking=True)
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(digests.device))
        return cls(seq, group, pages, host, done)

    def is_ready(self, *, wait: bool) -> bool:
        """Whether they are on the host by now."""
        if self.done is None or self.done.query():
            return True
        if wait:
            self.done.synchronize()
        return wait

    def as_event(self, kept: KeptDigests) -> Digested | None:
        """Those that still hold: a page may have had another content before they were here."""
        inside = self.pages[self.pages < kept.there.size]
        holds = np.zeros(self.pages.size, np.bool_)
        holds[: inside.size] = kept.there[inside] & (kept.since[inside] == self.seq)
        if not holds.any():
            return None
        pages, digests = self.pages[holds], self.digests.numpy().view(np.uint64)[holds]
        pages.setflags(write=False)
        digests.setflags(write=False)
        return Digested(self.group, pages, digests)
