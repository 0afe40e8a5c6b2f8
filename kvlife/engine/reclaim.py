"""Commands that give cache back: evict, evict_window, flush, resize."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvlife import transitions
from kvlife.config import MAX_LEN, MAX_PAGES, refuse_beyond_memory, with_pages
from kvlife.engine.allocation import AllocationCommands
from kvlife.engine.arguments import as_length, is_name
from kvlife.engine.batch import Batch
from kvlife.engine.core import command
from kvlife.errors import BadArgument, CommandRefused, ConfigError
from kvlife.events import Event, Evicted, Resized, WindowEvicted
from kvlife.ledger import PageSpace, PageState, derive


class ReclaimCommands(AllocationCommands):
    """evict, evict_window, flush, resize, num_free, num_evictable."""

    @command
    def evict(self, num_pages: int, group: str | None = None) -> int:
        """Evict `num_pages` cached pages of the base group, or of a named one; returns how many.

        Fewer go where fewer can; a window group's go alone and leave holes.
        """
        num_pages = as_length("num_pages", num_pages, 0, MAX_PAGES)
        groups = self.ledger.layout.groups
        idx = self.ledger.layout.base if group is None else self._group_idx(group)
        if groups[idx].window is None:
            need = [num_pages if other.idx == idx else 0 for other in groups]
            victims = self._index.victims(need, self._locked)
        else:
            victims = self._index.window_victims(idx, num_pages, self._locked)
        num = int(victims.num_found[idx])
        if num:
            self._decide([Evicted("pressure", victims.pages)], victims)
        return num

    @command
    def evict_window(self, which: Batch | Sequence[str]) -> int:
        """Move the cursors as far as what is published stays usable; returns pages let go."""
        rows = self._rows(which)
        ledger = self.ledger
        index, total = ledger.index_of(rows), 0
        committed = ledger.rows.committed.take(index)
        events: list[Event] = []
        for group in ledger.layout.window_groups:
            window, size = group.window or 1, group.page_size
            cursor = ledger.rows.cursors[group.window_idx][index]
            target = transitions.cursor_target(committed, window, size)
            moving = np.flatnonzero(target > cursor)
            if not moving.size:
                continue
            chosen = rows.take(moving)
            chosen.setflags(write=False)
            event = WindowEvicted(group.idx, chosen, target.take(moving), np.empty(0, np.int32))
            at = derive(ledger, event).gone_at
            assert at is not None  # a window group's move always says where
            event.pages = ledger.pages_at(at)[group.idx]
            total += event.pages.size
            events.append(event)
        if events:
            self._decide(events)
        return total

    @command
    def flush(self) -> int:
        """Evict the whole cache; only while nothing is held. Returns the number of pages."""
        ledger = self.ledger
        busy = [
            f"{num} {what}"
            for num, what in (
                (len(ledger.requests), "live requests"),
                (len(ledger.sessions), "sessions"),
                (len(ledger.pins), "pins"),
                (len(ledger.steps), "steps in flight"),
            )
            if num
        ]
        if busy:
            raise CommandRefused(f"flush needs an idle engine; there are {', '.join(busy)}")
        pages = tuple(self._index.pages(group.idx) for group in ledger.layout.groups)
        num = sum(len(part) for part in pages)
        if num:
            self._decide([Evicted("flush", pages)])
            self._index.clear()
        return num

    @command
    def resize(self, num_pages: int, space: str | None = None) -> None:
        """Give a page space another size. To shrink, pages from `num_pages` on must be FREE."""
        layout = self.ledger.layout
        names = {item.name: item.idx for item in layout.spaces}
        if space is not None and not (is_name(space) and space in names):
            raise BadArgument(f"no page space {space!r}: the spaces are {', '.join(names)}")
        idx = 0 if space is None else names[space]
        sizes = [group.page_size for group in layout.groups if group.space_idx == idx]
        limit = min(MAX_PAGES, MAX_LEN // max(sizes))
        num_pages = as_length("num_pages", num_pages, 2, limit)
        try:
            resized = with_pages(layout, {idx: num_pages})
            refuse_beyond_memory(resized)
            if self._pools is not None:
                self._pools.refuse_layout(resized)
        except ConfigError as error:
            raise CommandRefused(f"resize to {num_pages} pages: {error}") from error
        columns = self.ledger.spaces[idx]
        used = np.flatnonzero(columns.state[num_pages:] != PageState.FREE)
        if used.size:
            raise CommandRefused(
                f"space {layout.spaces[idx].name!r} cannot shrink to {num_pages} pages:"
                f" {used.size} above are in use, the first is page {num_pages + int(used[0])};"
                " evict, or wait until they are let go"
            )
        if num_pages != columns.num_pages:
            self._record((Resized(idx, num_pages),))

    def num_free(self, group: str | None = None) -> int:
        """FREE pages of the space of the base group, or of a named one."""
        return self._space_of(group).free.num_free

    def num_evictable(self, group: str | None = None) -> int:
        """CACHED pages without refs or pins in that space; nearly always all of them can go."""
        idx = self._group_space(group)
        kept = self._evictable_at
        if kept is not None and kept[0] == self.next_seq and kept[1] == idx:
            return kept[2]
        space = self.ledger.spaces[idx]
        idle = (space.state == PageState.CACHED) & (space.refs == 0) & (space.pins == 0)
        num = int(np.count_nonzero(idle))
        self._evictable_at = (self.next_seq, idx, num)
        return num

    def _group_space(self, group: str | None) -> int:
        layout = self.ledger.layout
        idx = layout.base if group is None else self._group_idx(group)
        return layout.groups[idx].space_idx

    def _space_of(self, group: str | None) -> PageSpace:
        return self.ledger.spaces[self._group_space(group)]
