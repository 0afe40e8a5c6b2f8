"""Content checks (debug level): what wholly committed pages hold, held against their digests.

A page's digest is taken when a commit makes it wholly committed, kept once however many rows share
it, and forgotten when the page is freed or rolled back:

    [ whole page ) [ whole page ) [ partly )         digests of the first two
    0                             committed

It is held against the page before the page is let go, evicted, matched, copied or pinned, and in an
audit. Digests are taken and compared on the device; what differs goes to a violation buffer, which
the host reads at once on a CPU, and at most one step late on a GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt
from torch import Tensor

from kvlife.events import (
    Admitted,
    Committed,
    Digested,
    Pinned,
    Resized,
    Resumed,
    RolledBack,
    SessionRestored,
    SessionSaved,
    Unpinned,
)
from kvlife.invariants.effect import holder_of
from kvlife.kernels.compare_digests import compare_digests
from kvlife.kernels.digest_pages import digest_pages
from kvlife.kernels.violations import ViolationCode, Violations
from kvlife.ledger import PageState, RowState
from kvlife.ledger.spans import spans_of
from kvlife.pools.accusing import Look, changed
from kvlife.pools.agreement import ViolationWatch
from kvlife.pools.kept_digests import KeptDigests, TakenDigests
from kvlife.pools.readings import PageReadings, Reading
from kvlife.pools.stores import StoreWatch

if TYPE_CHECKING:
    from kvlife.config import GroupLayout
    from kvlife.events import Event
    from kvlife.kernels.violations import Violation
    from kvlife.ledger import Change, HostCopy, Ledger
    from kvlife.pools.buffers import KvBuffers
    from kvlife.pools.contract import DeviceFinding
    from kvlife.pools.uploading import Uploads

I32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]
Objects = npt.NDArray[np.object_]

_HELD = (PageState.PRIVATE, PageState.CACHED)
_CUTS = (RolledBack, SessionSaved, SessionRestored)


@attrs.frozen(eq=False)
class _Origin:
    """Digests that pages should have: since when, of whom (one, or one each), and where kept."""

    digests: Tensor
    since: Any  # Any: one number or an array
    owner: Any  # Any: one name or an array
    kept: KeptDigests | None = None


class PageContent:
    """Follows events around a device's state: `before` it is changed, and `after`.

    `buffers` has the KV buffers of each group, by its index. `stores` checks what is about to be
    stored. Findings come out of `outcome`.
    """

    def __init__(
        self,
        ledger: Ledger,
        buffers: Mapping[int, KvBuffers],
        uploads: Uploads,
        *,
        poisons: bool = False,
    ) -> None:
        """Know nothing of what pages hold by now; `poisons`: freed pages are filled."""
        self.ledger = ledger
        self.buffers = buffers
        self.violations = Violations.create(uploads.device)
        self.stores = StoreWatch(ledger, self.violations, uploads)
        self._uploads = uploads
        self._watch = ViolationWatch(self.violations, self._explained)
        self._readings = PageReadings(ledger)
        self._poisons = poisons
        self._kept = [
            KeptDigests.create(ledger.spaces[group.space_idx].num_pages, uploads.device)
            for group in ledger.layout.groups
        ]
        # By space: a page that one group frees may be taken by another.
        self._poisoned = [
            KeptDigests.create(space.num_pages, uploads.device) for space in ledger.spaces
        ]
        self._freed: list[tuple[int, I32]] = []
        host_pages = 0 if ledger.host is None else ledger.host.num_pages
        self._on_host = KeptDigests.create(host_pages, uploads.device)
        rows = range(ledger.layout.num_rows)
        self._holder: Objects = np.array([self._named(row) for row in rows], np.object_)
        self._committed = ledger.rows.committed.copy()
        self._rewritten: dict[str, tuple[int, I32]] = {}
        self._copies: list[tuple[Reading, Tensor]] = []
        self._taken: list[TakenDigests] = []
        self._looks: list[Look] = []
        self._num_old_looks = 0
        self._is_late = uploads.device.type != "cpu"

    def before(self, event: Event, change: Change, seq: int) -> None:
        """Hold the pages that the event reads to their digests; forget those of freed pages."""
        if isinstance(event, Admitted | Resumed):
            self._holder[event.row] = self._named(event.row)
        found = self._readings.of(event, change)
        for reading in found:
            self._verify(reading, self._kept[reading.group], seq)
        for reading in self._readings.taken(event, change):
            poisoned = self._poisoned[self._space_of(reading.group)]
            self._verify(reading, poisoned, seq)
            poisoned.forget(reading.pages)
        if change.saved is not None:
            self._save(change.saved, change, seq)
        if isinstance(event, RolledBack) and event.copies.size:
            self._look_at_sources(event)
        self._freed = list(self._readings.freed(found))
        for group, pages in self._freed:
            self._kept[group].forget(pages)
            self.stores.freed(group, pages)

    def after(self, event: Event, change: Change, seq: int) -> None:
        """Take the digests of pages that the event has made whole; forget those that it has cut."""
        if isinstance(event, Committed):
            assert change.index is not None  # a batch event
            old = self._committed[change.index]
            self._grow(change.index, old, event.committed_len, seq)
        elif isinstance(event, Admitted | Resumed):
            self._bound(event, change, seq)
        elif isinstance(event, _CUTS):
            self._check_copies(seq)
            self._cut(event, change, seq)
        elif isinstance(event, Pinned) and event.writes:
            pages = self._kept[event.group].among(event.pages)
            self._rewritten[event.pin_id] = (event.group, pages)
            self._kept[event.group].forget(pages)
        elif isinstance(event, Unpinned) and event.pin_id in self._rewritten:
            self._take_again(*self._rewritten.pop(event.pin_id), seq)
        elif isinstance(event, Resized):
            self._resize()
        if self._poisons:
            self._keep_poison(seq)
        self.stores.follow(event, change, seq)

    def audit(self) -> None:
        """Begin to hold every page of which a digest is kept to it."""
        seq = max(self.ledger.next_seq - 1, 0)
        for group, kept in enumerate(self._kept):
            self._verify(Reading(group, kept.pages(), "audited"), kept, seq)
        group_of = {each.space_idx: each.idx for each in reversed(self.ledger.layout.groups)}
        for space, group in group_of.items():
            poisoned = self._poisoned[space]
            self._verify(Reading(group, poisoned.pages(), "audited while FREE"), poisoned, seq)

    def begin(self) -> list[DeviceFinding]:
        """A step begins: ask the device for findings, and have those asked for before."""
        found = self._watch.begin()
        del self._looks[: self._num_old_looks]
        self._num_old_looks = len(self._looks)
        return found

    def outcome(self, *, wait: bool) -> list[DeviceFinding]:
        """What was found, as far as that is known."""
        found = self._watch.outcome(wait=wait)
        if wait or not self._is_late:
            self._looks.clear()
            self._num_old_looks = 0
        return found

    def notes(self, *, wait: bool = False) -> list[Digested]:
        """The digests that came to the host since it was last asked, as events, each once."""
        # They come in order; one that is there by now says nothing of those before it.
        ready = list(itertools.takewhile(lambda taken: taken.is_ready(wait=wait), self._taken))
        self._taken = self._taken[len(ready) :]
        notes = (taken.as_event(self._kept[taken.group]) for taken in ready)
        return [note for note in notes if note is not None]

    # Digests: taken, and held to.

    def _digests_of(self, group: int, pages: Tensor) -> Tensor:
        buffers = self.buffers[group]
        return digest_pages(buffers.arena, buffers.planes, pages)

    def _verify(self, reading: Reading, kept: KeptDigests, seq: int) -> None:
        """Hold the pages of a reading of which a digest is kept to it."""
        pages = kept.among(reading.pages)
        if pages.size:
            there = self._uploads.one(pages)
            origin = _Origin(kept.digest[there.long()], kept.since[pages], kept.owner[pages], kept)
            self._hold(reading, pages, there, origin, seq)

    def _hold(self, reading: Reading, pages: I32, there: Tensor, origin: _Origin, seq: int) -> None:
        """Report the pages (`there`: on the device) whose digests are not the expected ones."""
        found = self._digests_of(reading.group, there)
        compare_digests(
            found, origin.digests, there,
            violations=self.violations, seq=seq, group=reading.group,
        )  # fmt: skip
        self._looks.append(
            Look(
                seq=seq,
                reading=reading,
                holders=None if reading.rows is None else self._holder[reading.rows],
                pages=pages,
                since=np.broadcast_to(np.asarray(origin.since, np.int64), pages.shape),
                owner=np.broadcast_to(np.asarray(origin.owner, np.object_), pages.shape),
                expected=origin.digests,
                found=found,
                kept=origin.kept,
            )
        )

    def _take(self, group: int, spots: Index, seq: int) -> None:
        """Take the digests of the pages at these table entries, where none is kept."""
        layout = self.ledger.layout.groups[group]
        kept, space = self._kept[group], self.ledger.spaces[layout.space_idx]
        pages, first = np.unique(self.ledger.tables[group][spots], return_index=True)
        fresh = np.isin(space.state[pages], _HELD) & ~kept.there[pages]
        if not fresh.any():
            return
        pages, rows = pages[fresh], spots[first[fresh]] // layout.table_width
        there = self._uploads.one(pages)
        digests = self._digests_of(group, there)
        kept.keep(pages, there, digests, self._holder[rows], seq)
        self._taken.append(TakenDigests.send(seq, group, pages, digests))

    # What events do.

    def _grow(self, index: Index, old: I32, new: I32, seq: int) -> None:
        """Committed lengths grow: take the digests of the pages that are whole now."""
        self._committed[index] = new
        for group in self.ledger.layout.groups:
            spots = _whole_pages(group, index, old, new)
            if spots.size:
                self._take(group.idx, spots, seq)

    def _bound(self, event: Admitted | Resumed, change: Change, seq: int) -> None:
        if change.restored is not None:
            self._check_restored(change.restored, event.row, seq)
        end = event.restored_len if isinstance(event, Resumed) else event.prefix_len
        row, old, new = (np.array([value]) for value in (event.row, event.prefix_len, end))
        self._grow(row, old, new, seq)

    def _cut(self, event: Any, change: Change, seq: int) -> None:  # Any: one of `_CUTS`
        """Committed lengths shrink: what lies above them is written again, or gone."""
        index = np.array([event.row]) if change.index is None else change.index
        old = self._committed[index]
        new = np.minimum(old, change.committed)
        for group in self.ledger.layout.groups:
            spots = _whole_pages(group, index, new, old)
            pages = self.ledger.tables[group.idx][spots]
            space = self.ledger.spaces[group.space_idx]
            # What others share is not written: it is copied first.
            own = (space.state[pages] == PageState.PRIVATE) & (space.refs[pages] == 1)
            rows = spots[own] // group.table_width
            self._verify(Reading(group.idx, pages[own], "cut", rows), self._kept[group.idx], seq)
            self._kept[group.idx].forget(pages[own])
        self._committed[index] = new
        if change.row is not None:
            self._holder[change.row] = self._named(change.row)

    def _take_again(self, group: int, pages: I32, seq: int) -> None:
        """What wrote into whole pages from outside is done."""
        layout = self.ledger.layout.groups[group]
        spots = np.flatnonzero(np.isin(self.ledger.tables[group], pages))
        rows, entries = np.divmod(spots, layout.table_width)
        self._take(group, spots[(entries + 1) * layout.page_size <= self._committed[rows]], seq)

    def _resize(self) -> None:
        spaces = self.ledger.spaces
        self._kept = [
            kept.resized(spaces[self._space_of(group)].num_pages)
            for group, kept in enumerate(self._kept)
        ]
        self._poisoned = [
            kept.resized(space.num_pages)
            for kept, space in zip(self._poisoned, spaces, strict=True)
        ]

    def _keep_poison(self, seq: int) -> None:
        """Freed pages stay as they were filled, until they are taken."""
        for group, freed in self._freed:
            pages = np.unique(freed)
            there, owner = self._uploads.one(pages), self._kept[group].owner[pages]
            digests = self._digests_of(group, there)
            self._poisoned[self._space_of(group)].keep(pages, there, digests, owner, seq)

    def _space_of(self, group: int) -> int:
        return self.ledger.layout.groups[group].space_idx

    def _named(self, row: int) -> str | None:
        held = self.ledger.rows.state[row] == RowState.HELD
        return holder_of(self.ledger, row) if held else None

    # Copies: each is what its source was.

    def _look_at_sources(self, event: RolledBack) -> None:
        links = event.copies[(event.copies[:, 2:] > 0).all(axis=1)]
        for group in np.unique(links[:, 0]).tolist():
            _, rows, shared, new = links[links[:, 0] == group].T.copy()
            digests = self._digests_of(group, self._uploads.one(shared))
            self._copies.append((Reading(group, new, "made as a copy", rows), digests))

    def _check_copies(self, seq: int) -> None:
        for reading, digests in self._copies:
            there = self._uploads.one(reading.pages)
            origin = _Origin(digests, seq, self._holder[reading.rows])
            self._hold(reading, reading.pages, there, origin, seq)
        self._copies.clear()

    def _save(self, copy: HostCopy, change: Change, seq: int) -> None:
        """Keep the digests of what is copied to the host, by host page."""
        num = min(copy.pages.size, copy.host_pages.size)
        for group in np.unique(copy.groups[:num]).tolist():
            mine = copy.groups[:num] == group
            host = copy.host_pages[:num][mine]
            pages, there = self._uploads.several(copy.pages[:num][mine], host)
            digests, owner = self._digests_of(group, pages), self._holder[change.row]
            self._on_host.keep(host, there, digests, owner, seq)

    def _check_restored(self, copy: HostCopy, row: int, seq: int) -> None:
        """What comes back from the host is what went there."""
        kept = self._on_host
        for group in np.unique(copy.groups).tolist():
            mine = (copy.groups == group) & kept.there[copy.host_pages]
            if mine.any():
                pages, host = copy.pages[mine], copy.host_pages[mine]
                there, spots = self._uploads.several(pages, host)
                reading = Reading(group, pages, "restored from the host", np.full(pages.size, row))
                digests = kept.digest[spots.long()]
                origin = _Origin(digests, kept.since[host], kept.owner[host])
                self._hold(reading, pages, there, origin, seq)

    # Findings.

    def _explained(self, entries: Sequence[Violation]) -> DeviceFinding:
        """What kernels report of one event and group, in words."""
        if entries[0].code is ViolationCode.STRANGE_STORE:
            return self.stores.accused(entries)
        looks = [look for look in self._looks if look.seq == entries[0].seq]
        finding = changed(self.ledger, entries, looks)
        for look in looks:
            if look.kept is not None and look.reading.group == entries[0].group:
                # What was found once is not found again at each later look.
                for entry in entries:
                    look.kept.believe(entry.page, entry.where, entry.seq)
        return finding


def _whole_pages(group: GroupLayout, index: Index, low_len: I32, high_len: I32) -> Index:
    """Table entries of rows for the pages that end above `low_len` and not above `high_len`."""
    low, high = (
        np.clip(length // group.page_size, 0, group.table_width) for length in (low_len, high_len)
    )
    return spans_of(index * group.table_width, low, high)
