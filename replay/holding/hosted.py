"""The host's pages in a state: which keep a waiting request's KV, and which nobody accounts for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.events import Released, Resumed, Retracted
from kvlife.invariants.hosting import times_named
from kvlife.ledger import Ledger, PageSpace, PageState
from kvlife.log import LogRun
from kvlife.replay.history.touches import Touch
from kvlife.replay.history.whence import events_at, next_naming
from kvlife.replay.holding.losing import Story
from kvlife.replay.output.event_words import HOST

Bools = npt.NDArray[np.bool_]


@attrs.frozen(kw_only=True)
class HostCount:
    """Pages of the host, page 0 left out: all, FREE ones, those of backups, and lost ones."""

    pages: int
    free: int
    kept: int
    lost: int


class Hosted:
    """The host's page space, held against the backups of the requests that wait."""

    def __init__(self, ledger: Ledger, host: PageSpace) -> None:
        """Nothing is counted until it is asked for."""
        self.ledger = ledger
        self.host = host

    @cached_property
    def _named(self) -> npt.NDArray[np.int64]:
        return times_named(self.ledger, self.host)

    def count(self, lost: Bools) -> HostCount:
        """The pages by what they are, given which of them are lost."""
        kept = (self.host.state == PageState.PRIVATE) & ~lost
        return HostCount(
            pages=self.host.num_pages - 1,
            free=int(np.count_nonzero((self.host.state == PageState.FREE) & ~lost)),
            kept=int(np.count_nonzero(kept)),
            lost=int(np.count_nonzero(lost)),
        )

    def wrong_pages(self) -> Iterator[tuple[str, Bools]]:
        """What can be wrong with a page, and the pages with which it is."""
        host, named = self.host, self._named
        state, refs, pins = host.state, host.refs, host.pins
        free, private = state == PageState.FREE, state == PageState.PRIVATE
        yield "page 0, not as it must be, or in no state that is", self._reserved()
        yield "PRIVATE, and no backup of a waiting request names it", private & (named == 0)
        yield "FREE, and a backup of a waiting request names it", free & (named > 0)
        yield "PRIVATE, and more backups than one name it", private & (named > 1)
        yield "more refs than backups that name it", private & (refs > named)
        yield "fewer refs than backups that name it", private & (refs < named)
        yield "refs or pins on a page that is FREE", free & ((refs != 0) | (pins != 0))
        yield "a pin on it, and none reaches the host", private & (pins != 0)
        listed = np.bincount(host.free.pages(), minlength=host.num_pages)[: host.num_pages]
        yield "FREE, and not in the free list", free & (listed == 0)
        yield "in the free list more than once", free & (listed > 1)
        yield "in the free list, and not FREE", ~free & (listed > 0)

    def _reserved(self) -> Bools:
        host = self.host
        wrong: Bools = np.greater(host.state, PageState.PRIVATE)
        touched = host.refs[0] or host.pins[0] or host.key[0] or self._named[0]
        wrong[0] = bool(host.state[0] != PageState.RESERVED or touched)
        return wrong


def host_story(run: LogRun, page: int, last_seq: int, stop: int) -> Story:
    """How a host page came to be lost: who kept what there, and how that request ended.

    No event but a request's retraction takes a host page, and none but the next one that names the
    request gives it back.
    """
    story = Story(item=events_at(run, [last_seq]).get(last_seq))
    item = story.item
    if item is None or not isinstance(item.event, Retracted):
        return story
    rid = item.event.rid
    story.touched = Touch(
        seq=item.seq,
        step=item.step,
        time_ns=item.time_ns,
        event=type(item.event).__name__,
        where=f"page {page} of {HOST}",
        text=f"FREE -> PRIVATE, for the backup of request {rid}",
        begins=True,
    )
    ended = next_naming(run, rid, last_seq + 1, stop)
    if ended is not None and isinstance(ended.event, Released | Resumed):
        story.lost, story.holders = ended, (f"request {rid}",)
    return story
