"""Whether a publish gives a key that another CACHED page has: what the fast proof asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kvlife.ledger import PageState

if TYPE_CHECKING:
    from kvlife.config import GroupLayout
    from kvlife.events import Evicted, Protected
    from kvlife.events.requests import U64
    from kvlife.ledger import Ledger


class PublishedKeys:
    """The keys of the CACHED pages, a set for each cache group, kept as long as events are seen.

    A set may have a key too many after a fault, and the guards then look at the pages themselves.
    `seen` counts the events that the checker has looked at or passed over. Where it and the
    ledger's seq drift apart, events were folded in unseen, and the sets are made anew from the
    columns; so they are for another ledger. Some 80 bytes a CACHED page.
    """

    __slots__ = ("_drift", "_keys", "_ledger", "_seen")

    def __init__(self, seen: Callable[[], int]) -> None:
        """Know nothing yet."""
        self._seen = seen
        self._ledger: Ledger | None = None
        self._drift = 0
        self._keys: list[set[int]] = []

    def forget(self) -> None:
        """The columns may not be what the events made them: begin anew."""
        self._ledger = None

    def publish(self, ledger: Ledger, event: Protected) -> bool:
        """Note the keys of an event about to be applied; whether they are new, and each once."""
        self._follow(ledger)
        new = True
        for group, known in zip(ledger.layout.groups, self._keys, strict=True):
            keys = event.keys[group.idx]
            if not len(keys):
                continue
            if event.rebinds.size:
                keys = _not_rebound(ledger, event, group, keys)
            given = keys.tolist()
            num, before = len(given), len(known)
            known.update(given)
            if 0 in known:
                # The entry of a 0 is not published.
                known.discard(0)
                num = int(np.count_nonzero(keys))
            new = new and len(known) == before + num
        return new

    def evict(self, ledger: Ledger, event: Evicted) -> None:
        """The pages of an event about to be applied lose their keys."""
        self._follow(ledger)
        for group, known, pages in zip(ledger.layout.groups, self._keys, event.pages, strict=True):
            if len(pages):
                keys = ledger.spaces[group.space_idx].key.take(pages)
                known.difference_update(keys.tolist())

    def _follow(self, ledger: Ledger) -> None:
        drift = ledger.next_seq - self._seen()
        if ledger is self._ledger and drift == self._drift:
            return
        self._ledger, self._drift = ledger, drift
        self._keys = [_keys_of(ledger, group) for group in ledger.layout.groups]


def _keys_of(ledger: Ledger, group: GroupLayout) -> set[int]:
    space = ledger.spaces[group.space_idx]
    mine = (space.state == PageState.CACHED) & (space.group == group.idx)
    return set(space.key[mine].tolist())


def _not_rebound(ledger: Ledger, event: Protected, group: GroupLayout, keys: U64) -> U64:
    """The keys with 0 for those that a rebind finds on a page that has one already."""
    links = event.rebinds[event.rebinds[:, 0] == group.idx]
    at = links[:, 1] - max(int(ledger.rows.protected[event.row]), 0) // group.page_size
    cached = ledger.spaces[group.space_idx].key.take(links[:, 3], mode="clip") != 0
    at = at[(at >= 0) & (at < len(keys)) & cached]
    keys = keys.copy()
    keys[at] = 0
    return keys
