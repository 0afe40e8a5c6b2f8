"""Commands that move the ladder: allocate, decode, commit, roll_back, and what decode will need."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvlife import transitions
from kvlife.config import MAX_LEN
from kvlife.engine.arguments import as_length, as_lens, is_name
from kvlife.engine.batch import Batch
from kvlife.engine.core import command
from kvlife.engine.granting import PageGranting
from kvlife.errors import BadArgument, BadLength
from kvlife.events import Allocated, Committed, PageLists, RolledBack
from kvlife.events.arrays import NO_LINKS
from kvlife.ledger import Change, derive_allocated
from kvlife.ledger.entries import rows_entries
from kvlife.ledger.spans import num_at, spans_of
from kvlife.pools.contract import Slots

I32 = npt.NDArray[np.int32]
ONE = np.array(1, np.int32)


class AllocationCommands(PageGranting):
    """batch, allocate, decode, commit, roll_back, slots, tokens_required_next_decode."""

    @command
    def batch(self, rids: Sequence[str]) -> Batch:
        """Name the requests of a batch; good until one of their rows changes hands."""
        rows = self._rows_of_ids(rids)
        index = rows.astype(np.intp)
        index.setflags(write=False)
        return Batch(
            tuple(rids),
            rows,
            index,
            self.ledger.rows.generation.take(index).tobytes(),
            self.ledger.membership,
        )

    @command
    def allocate(
        self,
        which: Batch | Sequence[str],
        lens: object,
        *,
        window_start_lens: object = None,
    ) -> Slots:
        """Schedule each request up to `lens` tokens; evicts what must go.

        Returns the slots of the base group for the new tokens, int32, in row order: an array, or
        where pools are attached a tensor on their device. Where
        `window_start_lens` is given, window groups get pages only from there on (a request whose
        KV comes from elsewhere); it takes rows that hold no window page above their floor.
        Raises `BadLength`, `OutOfPages`, `StaleBatch`, `UnknownRequest`.
        """
        rows = self._rows(which)
        index = self.ledger.index_of(rows)
        new = as_lens("lens", lens, rows.size)
        old = self.ledger.rows.lane(index).allocated
        self._check_growth(rows, old, new)
        if new.tobytes() == old.tobytes():
            return self._slots(self.ledger.layout.base, rows, old, new)
        cursors = self._skipped(rows, old, new, window_start_lens)
        self._allocate(rows, new, cursors, derive_allocated(self.ledger, index, new, cursors))
        return self._slots(self.ledger.layout.base, rows, old, new)

    @command
    def decode(self, batch: Batch) -> Slots:
        """Schedule one token for each request; returns their slots in the base group.

        An array, or where pools are attached a tensor on their device; `last_slots` has the slots
        in the other groups.
        """
        rows = self._rows(batch)
        ledger = self.ledger
        index = ledger.index_of(rows)
        old = ledger.rows.lane(index).allocated
        new = old + ONE
        if 1 in (new > self._capacity).tobytes():
            self._check_growth(rows, old, new)
        change = derive_allocated(ledger, index, new, None)
        change.one_each = True
        pages = self._allocate(rows, new, None, change)
        return self._decoded_slots(rows, old, change, pages)

    def _decoded_slots(self, rows: I32, old: I32, change: Change, pages: PageLists) -> Slots:
        """Slots of one more token each: beside the last one, or the first of a new page."""
        base = self.ledger.layout.base
        if self._pools is not None:
            there = self._pools.last_slots(base, rows)
            if there is not None:
                return there
        kept, crossing = self._slots_kept, change.crossing
        if kept is None or kept[0] is not old or (crossing is None and pages[base].size):
            slots = self._slots_at(base, rows, old)
        else:
            slots = kept[1] + ONE
            if crossing is not None:
                slots[crossing] = self.ledger.measures[base].first_slots(pages[base])
        slots.setflags(write=False)
        self._slots_kept = (change.allocated, slots)
        return slots

    @command
    def commit(self, which: Batch | Sequence[str], lens: object = None) -> None:
        """Confirm up to `lens` tokens, or everything that steps have settled.

        Raises `BadLength` where a length shrinks, or passes what is settled or allocated.
        """
        rows = self._rows(which)
        ledger = self.ledger
        index = ledger.index_of(rows)
        lane = ledger.rows.lane(index)
        old, allocated = lane.committed, lane.allocated
        bound = allocated if lane.unbounded else np.minimum(lane.settled, allocated)
        if lens is None:
            new = bound
        else:
            new = as_lens("lens", lens, rows.size)
            self._check_commit(rows, old, new, bound)
        if new.tobytes() == old.tobytes():
            return
        if ledger.pins:
            self._refuse_writing(index, old, new, "committed")
        new.setflags(write=False)
        change = Change(index=index, committed=new)
        self._record((Committed(rows, new),), (change,))

    @command
    def roll_back(
        self, which: Batch | Sequence[str], lens: object, *, allocated_lens: object = None
    ) -> None:
        """Cut requests back to `lens` tokens, committed ones included, never below published ones.

        `allocated_lens` (at least `lens`) keeps more scheduled than `lens`. Raises `BadLength`.
        """
        rows = self._rows(which)
        wanted = as_lens("lens", lens, rows.size)
        index, columns = self.ledger.index_of(rows), self.ledger.rows
        old, committed = columns.allocated.take(index), columns.committed.take(index)
        allocated = (
            wanted
            if allocated_lens is None
            else as_lens("allocated_lens", allocated_lens, rows.size)
        )
        self._check_roll_back(rows, wanted, allocated, old)
        kept = np.minimum(committed, wanted)
        changing = np.flatnonzero((allocated != old) | (kept != committed))
        if not changing.size:
            return
        if changing.size < rows.size:
            # A length equal to the present one is no event, so its window is not asked for either.
            rows, index = rows.take(changing), index.take(changing)
            kept, allocated, old = kept.take(changing), allocated.take(changing), old.take(changing)
            rows.setflags(write=False)
        self._check_windows_kept(rows, kept, allocated)
        pages = self.ledger.pages_at(rows_entries(self.ledger, index, allocated, old))
        self._decide([RolledBack(rows, allocated, kept, pages, NO_LINKS)])

    @command
    def slots(
        self, which: Batch | Sequence[str], start_lens: object, stop_lens: object, group: str
    ) -> Slots:
        """Slots of positions [start, stop) of each request in a named group, as `allocate`'s."""
        rows = self._rows(which)
        start = as_lens("start_lens", start_lens, rows.size)
        stop = as_lens("stop_lens", stop_lens, rows.size)
        allocated = self.ledger.rows.allocated.take(self.ledger.index_of(rows))
        wrong = (start > stop) | (stop > allocated)
        if wrong.any():
            idx, rid = self._rid_at(rows, wrong)
            raise BadLength(
                f"slots [{start[idx]}, {stop[idx]}) of {rid!r} were asked for, {allocated[idx]}"
                " tokens are allocated"
            )
        return self._slots(self._group_idx(group), rows, start, stop)

    @command
    def last_slots(self, batch: Batch, group: str | None = None) -> Slots:
        """The slot of each request's last allocated token, in the base group or a named one."""
        ledger, rows = self.ledger, self._rows(batch)
        idx = ledger.layout.base if group is None else self._group_idx(group)
        if self._pools is not None:
            there = self._pools.last_slots(idx, rows)
            if there is not None:
                return there
        return self._slots_at(idx, rows, ledger.rows.lane(ledger.index_of(rows)).allocated - 1)

    def _slots_at(self, group: int, rows: I32, positions: I32) -> I32:
        """The slot of one position of each row."""
        ledger, layout = self.ledger, self.ledger.layout.groups[group]
        bases = ledger.bases_of(ledger.index_of(rows), layout.table_width)
        measure = ledger.measures[group]
        pages = ledger.tables[group].take(bases + measure.page_idx(positions))
        return measure.slots_of(pages, positions)

    def tokens_required_next_decode(self, batch: Batch | Sequence[str], draft: int = 0) -> int:
        """Slots of new pages that the next decode takes, with `draft` more tokens each.

        In tokens, of the group that takes the most; compare with free and evictable pages times
        their page size.
        """
        need = self.pages_required(batch, 1 + as_length("draft", draft, 0, MAX_LEN - 1))
        groups = self.ledger.layout.groups
        return max(num * group.page_size for num, group in zip(need, groups, strict=True))

    def pages_required(self, batch: Batch | Sequence[str], num_tokens: int) -> tuple[int, ...]:
        """New pages per group for `num_tokens` more tokens of each request."""
        num_tokens = as_length("num_tokens", num_tokens, 0, MAX_LEN)
        rows = self._rows(batch)
        old = self.ledger.rows.lane(self.ledger.index_of(rows)).allocated.astype(np.int64)
        return tuple(
            int(
                (
                    transitions.num_pages(old + num_tokens, group.page_size)
                    - transitions.num_pages(old, group.page_size)
                ).sum()
            )
            for group in self.ledger.layout.groups
        )

    def _group_idx(self, name: str) -> int:
        for group in self.ledger.layout.groups:
            if is_name(name) and group.name == name:
                return group.idx
        known = ", ".join(group.name for group in self.ledger.layout.groups)
        raise BadArgument(f"no cache group {name!r}: the groups are {known}")

    def _check_growth(self, rows: I32, old: I32, new: I32) -> None:
        capacity = self.ledger.layout.capacity
        wrong = (new < old) | (new > capacity)
        if wrong.any():
            idx, rid = self._rid_at(rows, wrong)
            raise BadLength(
                f"request {rid!r} was to have {new[idx]} tokens allocated; it has {old[idx]} and"
                f" its row holds {capacity}: lengths only grow here (roll_back shrinks)"
            )

    def _check_commit(self, rows: I32, old: I32, new: I32, bound: I32) -> None:
        wrong = (new < old) | (new > bound)
        if wrong.any():
            idx, rid = self._rid_at(rows, wrong)
            raise BadLength(
                f"request {rid!r} was to have {new[idx]} tokens committed; it has {old[idx]}, and"
                f" {bound[idx]} are allocated and settled"
            )

    def _check_roll_back(self, rows: I32, wanted: I32, allocated: I32, old: I32) -> None:
        protected = self.ledger.rows.protected.take(self.ledger.index_of(rows))
        wrong = (wanted < protected) | (allocated < wanted) | (allocated > old)
        if wrong.any():
            idx, rid = self._rid_at(rows, wrong)
            raise BadLength(
                f"request {rid!r} was to be rolled back to {wanted[idx]} tokens with"
                f" {allocated[idx]} allocated; {protected[idx]} are published and {old[idx]}"
                " allocated: stay between them"
            )

    def _check_windows_kept(self, rows: I32, committed: I32, allocated: I32) -> None:
        index = self.ledger.index_of(rows)
        floor = self.ledger.rows.floor.take(index)
        for group in self.ledger.layout.window_groups:
            cursor = self.ledger.rows.cursors[group.window_idx][index]
            lack = transitions.window_lack(
                cursor, floor, committed, allocated, group.window or 1, group.page_size
            )
            wrong = lack > 0
            if wrong.any():
                idx, rid = self._rid_at(rows, wrong)
                raise BadLength(
                    f"request {rid!r} cannot be rolled back to {committed[idx]} tokens: window"
                    f" group {group.name!r} has let go of what lies below {cursor[idx]}"
                )

    def _skipped(
        self, rows: I32, old: I32, new: I32, window_start_lens: object
    ) -> tuple[I32, ...] | None:
        windows = self.ledger.layout.window_groups
        if window_start_lens is None or not windows:
            return None
        start = as_lens("window_start_lens", window_start_lens, rows.size)
        index = self.ledger.index_of(rows)
        floor = self.ledger.rows.floor.take(index)
        cursors = []
        for group in windows:
            before = self.ledger.rows.cursors[group.window_idx][index]
            skip = transitions.page_floor(start, group.page_size)
            held = transitions.page_ceil(np.maximum(floor, before), group.page_size)
            bound = transitions.cursor_bound(new, group.window or 1, group.page_size)
            wrong = (skip < before) | (skip > bound) | ((skip > before) & (old > held))
            if wrong.any():
                idx, rid = self._rid_at(rows, wrong)
                raise BadLength(
                    f"request {rid!r} cannot skip window pages below {start[idx]}: it holds some"
                    f" above {held[idx]}, or its window reaches back to {bound[idx]}"
                )
            cursors.append(skip.astype(np.int32))
        return tuple(cursors)

    def _allocate(
        self, rows: I32, new: I32, cursors: tuple[I32, ...] | None, change: Change
    ) -> PageLists:
        at = change.taken_at
        assert at is not None  # derive_allocated always says where
        new.setflags(write=False)
        free = self.ledger.spaces[0].free
        if len(at) == 1 and (num := num_at(at[0])) <= free.num_free:
            pages = change.taken = (free.head(num),)
            self._record((Allocated(rows, new, pages, cursors),), (change,))
            return pages
        grant = self._grant([num_at(spot) for spot in at])
        change.taken = grant.pages
        event = Allocated(rows, new, grant.pages, cursors)
        if not grant.events:
            self._record((event,), (change,))
            return grant.pages
        self._record((*grant.events, event), (*[None] * len(grant.events), change))
        self._follow(grant.victims)
        return grant.pages

    def _slots(self, group: int, rows: I32, old: I32, new: I32) -> Slots:
        """Slots of positions [old, new) of rows, in row order."""
        if self._pools is not None:
            there = self._pools.slots(group, rows, old, new)
            if there is not None:
                return there
        layout = self.ledger.layout.groups[group]
        size, table = layout.page_size, self.ledger.tables[group]
        index = self.ledger.index_of(rows)
        if rows.size == 1:
            first, stop = int(old[0]), int(new[0])
            base = int(index[0]) * layout.table_width
            pages = table[base + first // size : base + -(-stop // size)]
            whole: I32 = np.add.outer(pages * size, np.arange(size, dtype=np.int32)).ravel()
            return whole[first % size : first % size + stop - first]
        positions = spans_of(index * layout.table_width * size, old, new)
        return (table.take(positions // size) * size + positions % size).astype(np.int32)
