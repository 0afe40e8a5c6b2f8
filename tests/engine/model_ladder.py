"""The half of the model that admits requests and moves their lengths.

Each command is a generator. It yields the names of the errors that would be right now (none: the
command must succeed), is sent the engine's result, holds it against its own, and changes the
model. Two choices are the engine's, and the model only judges them: which FREE pages a row gets,
and which of the pages that may be evicted go. `look` shows it what was chosen.
"""

import math

from model_state import NO_ERRORS, ModelState, Row


class Batch:
    """A batch as the model knows it: its rows and how often they had changed hands."""

    def __init__(self, engine_batch, rows):
        self.engine_batch = engine_batch
        self.rows = rows
        self.hands = [row.hands for row in rows]

    def is_stale(self, state):
        return any(
            state.rows.get(row.number) is not row or row.hands != hands
            for row, hands in zip(self.rows, self.hands, strict=True)
        )


class LadderModel(ModelState):
    """match, admit, resume, batch, allocate, decode, commit, roll_back, evict_window."""

    look = None

    # -- arguments -------------------------------------------------------------------------

    def rows_of(self, which):
        if isinstance(which, Batch):
            return {"StaleBatch"} if which.is_stale(self) else NO_ERRORS, which.rows
        errors = set()
        if not which or len(set(which)) != len(which):
            errors.add("BadArgument")
        rows = [self.requests.get(rid) for rid in which]
        if None in rows:
            errors.add("UnknownRequest")
        return errors, rows

    def row_of(self, rid):
        row = self.requests.get(rid)
        return ({"UnknownRequest"} if row is None else NO_ERRORS), row

    def bad_lens(self, lens, rows):
        wrong = len(lens) != len(rows) or any(length < 0 for length in lens)
        return {"BadLength"} if wrong else NO_ERRORS

    # -- admission -------------------------------------------------------------------------

    def match(self, tokens, namespace="", evict_floor=0):
        got = yield NO_ERRORS
        assert got.matched_len == self.hit_len(namespace, tokens, len(tokens), evict_floor)
        assert got.prefix_len == self.hit_len(namespace, tokens, len(tokens) - 1, evict_floor)

    def admit(self, rid, tokens, namespace="", evict_floor=0):
        errors = set(self.bad_binding(rid, tokens, evict_floor))
        if rid in self.waiting:
            errors.add("DuplicateRequest")
        got = yield errors
        self.bind(rid, tokens, namespace, evict_floor, got)

    def resume(self, rid, tokens, evict_floor=0):
        errors = set(self.bad_binding(rid, tokens, evict_floor))
        if rid not in self.waiting:
            errors.add("BadArgument")
        if errors:
            yield errors
            return
        waits = self.waiting[rid]
        prefix = self.hit_len(waits.namespace, tokens, len(tokens) - 1, evict_floor)
        end = min(waits.committed, len(tokens) - 1)
        plan = None
        if waits.backup and end > prefix:
            plan = self.restoring(waits, prefix, end, evict_floor)
            if plan is None:
                got = yield NO_ERRORS
                assert got.why_recomputed
                self.bind(rid, tokens, self.waiting.pop(rid).namespace, evict_floor, got)
                return
        if plan is None:
            got = yield NO_ERRORS
            assert (got.why_recomputed, got.restored_len) == (None, prefix)
            self.bind(rid, tokens, self.waiting.pop(rid).namespace, evict_floor, got)
            return
        yield from self.restore(rid, tokens, prefix, end, evict_floor, plan)

    def restoring(self, waits, prefix, end, floor):
        """(cursors, wanted entries) where cache and backup together have it all, else None."""
        cursors, wanted = {}, []
        for g, group in enumerate(self.groups):
            have = {k for owner, k in waits.backup if owner == g}
            cursor = 0
            if group.window is not None:
                cursor = self.bound(g, prefix)
                above = range(prefix // group.size, -(-end // group.size))
                first = max((k + 1 for k in above if k not in have), default=0) * group.size
                if cursor < first <= self.bound(g, end):
                    cursor = first
                cursors[g] = cursor
            asked = self.entries(g, prefix, end, floor, cursor)
            if not have.issuperset(asked):
                return None
            wanted += [(g, k) for k in asked]
        return cursors, wanted

    def restore(self, rid, tokens, prefix, end, floor, plan):
        """Bind the row, with pages for what the backup adds to the prefix, if there is room."""
        cursors, wanted = plan
        waits = self.waiting[rid]
        for g, group in enumerate(self.groups):
            ks = self.entries(g, 0, prefix, floor, cursors.get(g, 0))
            pages = {self.canonical(waits.namespace, tokens, g, k) for k in ks}
            self.spared[group.space] = self.spared.get(group.space, set()) | pages
        need = [sum(owner == g for owner, _ in wanted) for g in self.all_groups()]
        short = self.shortage(need)
        free = {space: self.free(space) for space in self.num_pages}
        room = {space: sum(len(self.evictable(g)) for g in self.groups_of(space)) for space in free}
        refused = any(short[space] > room[space] for space in short)
        got = yield ({"OutOfPages"} if refused else NO_ERRORS)
        assert (got.restored_len, got.why_recomputed) == (end, None)
        del self.waiting[rid]
        row = self.bind(rid, tokens, waits.namespace, floor, got, cursors)
        victims = self.look.victims(self)
        self.check_num_victims(victims, short)
        for g, keys in enumerate(victims):
            free[self.groups[g].space] |= {self.published[g][key] for key in keys}
        self.forget(victims)
        for g, k in wanted:
            page = self.look.page(row.number, g, k)
            assert page in free[self.groups[g].space], f"page {page} was not FREE"
            free[self.groups[g].space].remove(page)
            row.tables[g][k] = page
        row.committed = row.allocated = end

    def bad_binding(self, rid, tokens, evict_floor):
        if not rid:
            yield "BadArgument"
        if rid in self.requests or rid in self.aborted:
            yield "DuplicateRequest"
        if not len(tokens):
            yield "BadTokens"
        if len(tokens) > self.capacity or not 0 <= evict_floor <= self.capacity:
            yield "BadLength"
        if len(self.rows) == self.num_rows - 1:
            yield "OutOfRows"

    def bind(self, rid, tokens, namespace, evict_floor, got, cursors=None):
        assert got.matched_len == self.hit_len(namespace, tokens, len(tokens), evict_floor)
        prefix = self.hit_len(namespace, tokens, len(tokens) - 1, evict_floor)
        assert got.prefix_len == prefix
        assert got.rid == rid
        assert got.row not in self.rows
        assert 0 < got.row < self.num_rows
        if cursors is None:
            cursors = {g: self.bound(g, prefix) for g, _ in self.windows()}
        tables = [
            {
                k: self.canonical(namespace, tokens, g, k)
                for k in self.entries(g, 0, prefix, evict_floor, cursors.get(g, 0))
            }
            for g in range(len(self.groups))
        ]
        row = Row(
            number=got.row,
            rid=rid,
            namespace=namespace,
            prompt_len=len(tokens),
            floor=evict_floor,
            protected=prefix,
            committed=prefix,
            allocated=prefix,
            cursors=cursors,
            tables=tables,
        )
        self.rows[got.row] = self.requests[rid] = row
        return row

    # -- the ladder ------------------------------------------------------------------------

    def batch(self, rids):
        errors, rows = self.rows_of(rids)
        got = yield errors
        assert got.rids == tuple(rids)
        assert got.rows.tolist() == [row.number for row in rows]

    def allocate(self, which, lens, window_start_lens=None):
        errors, rows = self.rows_of(which)
        errors = errors or self.bad_lens(lens, rows)
        if not errors and any(
            not row.allocated <= new <= self.capacity for row, new in zip(rows, lens, strict=True)
        ):
            errors = {"BadLength"}
        if not errors and [row.allocated for row in rows] == list(lens):
            got = yield NO_ERRORS
            assert len(got) == 0
            return
        starts = window_start_lens if self.windows() else None
        if not errors and starts is not None:
            errors = self.bad_starts(rows, lens, starts)
        if errors:
            yield errors
            return
        cursors = [dict(row.cursors) for row in rows]
        for cursor, start in zip(cursors, starts or (), strict=starts is not None):
            cursor.update({g: start // group.size * group.size for g, group in self.windows()})
        wanted = [
            (row, g, self.entries(g, row.allocated, new, row.floor, cursor.get(g, 0)))
            for g in range(len(self.groups))
            for row, new, cursor in zip(rows, lens, cursors, strict=True)
        ]
        yield from self.take(rows, lens, cursors, wanted)

    def bad_starts(self, rows, lens, starts):
        if self.bad_lens(starts, rows):
            return {"BadLength"}
        for row, new, start in zip(rows, lens, starts, strict=True):
            for g, group in self.windows():
                cursor = start // group.size * group.size
                holds = any(k >= self.reach(g, row.floor) for k in row.tables[g])
                if not row.cursors[g] <= cursor <= self.bound(g, new):
                    return {"BadLength"}
                if cursor > row.cursors[g] and holds:
                    return {"BadLength"}
        return NO_ERRORS

    def take(self, rows, lens, cursors, wanted):
        """Give each row the pages that the engine chose, if there was room for them at all."""
        need = [sum(len(ks) for _, group, ks in wanted if group == g) for g in self.all_groups()]
        short = self.shortage(need)
        free = {space: self.free(space) for space in self.num_pages}
        room = {
            space: sum(len(self.evictable(g)) for g in self.groups_of(space))
            for space in self.num_pages
        }
        refused = any(short[space] > room[space] for space in short)
        got = yield ({"OutOfPages"} if refused else NO_ERRORS)
        victims = self.look.victims(self)
        self.check_num_victims(victims, short)
        gone = [{self.published[g][key] for key in keys} for g, keys in enumerate(victims)]
        self.forget(victims)
        for g, pages in enumerate(gone):
            free[self.groups[g].space] |= pages
        slots = []
        for row, g, ks in wanted:
            for k in ks:
                page = self.look.page(row.number, g, k)
                assert page in free[self.groups[g].space], f"page {page} was not FREE"
                free[self.groups[g].space].remove(page)
                row.tables[g][k] = page
        size = self.groups[self.base].size
        for row, new, cursor in zip(rows, lens, cursors, strict=True):
            at = range(row.allocated, new)
            table = row.tables[self.base]
            # Where the front of a window is skipped, its positions have no page: slot 0 and on.
            slots += [table.get(pos // size, 0) * size + pos % size for pos in at]
            row.allocated, row.cursors = new, cursor
        assert list(got) == slots

    def all_groups(self):
        return range(len(self.groups))

    def shortage(self, need):
        """Pages per space that must come from the cache."""
        return {
            space: sum(need[g] for g in self.groups_of(space)) - len(self.free(space))
            for space in self.num_pages
        }

    def check_num_victims(self, victims, short):
        """Exactly as many pages went as were short, to whole units where leaf tails went."""
        units = {}
        for space, num in short.items():
            full = [g for g in self.groups_of(space) if self.groups[g].window is None]
            per_page = self.groups[full[0]].size / self.align if full else 0
            units[space] = math.ceil(max(0, num) * per_page)
        for space, num in short.items():
            per_unit = sum(self.align // self.groups[g].size for g in self.groups_of(space))
            freed = sum(len(victims[g]) for g in self.groups_of(space))
            along = per_unit * max((units[other] for other in units if other != space), default=0)
            most = num + per_unit - 1 if units[space] else max(num, 0)
            assert num <= freed <= max(most, along), f"{space}: {freed} went, {num} were short"

    def decode(self, batch):
        errors, rows = self.rows_of(batch)
        if errors:
            yield errors
            return
        got = yield from self.allocate(batch, [row.allocated + 1 for row in rows])
        return got

    def commit(self, which, lens=None):
        errors, rows = self.rows_of(which)
        if not errors and lens is not None:
            errors = self.bad_lens(lens, rows)
        if errors:
            yield errors
            return
        bounds = [
            row.allocated if row.settled is None else min(row.settled, row.allocated)
            for row in rows
        ]
        lens = bounds if lens is None else lens
        for row, new, bound in zip(rows, lens, bounds, strict=True):
            if not row.committed <= new <= bound:
                errors = {"BadLength"}
        if not errors and any(
            self.written(row, row.committed, new) for row, new in zip(rows, lens, strict=True)
        ):
            errors = {"PinRefused"}
        yield errors
        for row, new in zip(rows, lens, strict=True):
            row.committed = new

    def roll_back(self, which, lens, allocated_lens=None):
        errors, rows = self.rows_of(which)
        ends = lens if allocated_lens is None else allocated_lens
        errors = errors or self.bad_lens(lens, rows) or self.bad_lens(ends, rows)
        if errors:
            yield errors
            return
        cuts = []
        for row, length, end in zip(rows, lens, ends, strict=True):
            kept = min(row.committed, length)
            if not row.protected <= length <= end <= row.allocated:
                errors = {"BadLength"}
            elif (kept, end) != (row.committed, row.allocated):
                cuts.append((row, kept, end))
                if not self.keeps_window(row, kept, end):
                    errors = {"BadLength"}
        yield errors
        for row, kept, end in cuts:
            self.cut(row, kept, end)

    def cut(self, row, committed, allocated):
        """Shorten a row; what leaves it while steps are in flight stays pinned under the newest."""
        for g, group in enumerate(self.groups):
            for k in [k for k in row.tables[g] if k >= -(-allocated // group.size)]:
                self.leave(row, g, row.tables[g].pop(k))
        for g, _ in self.windows():
            row.cursors[g] = min(row.cursors[g], self.bound(g, committed))
        row.committed, row.allocated = committed, allocated
        if row.settled is not None:
            row.settled = min(row.settled, allocated)
        for number in row.steps:
            noted = self.steps[number].noted
            noted[row.number] = min(noted[row.number], allocated)

    def leave(self, row, g, page):
        if row.steps:
            self.steps[row.steps[-1]].pinned.append((g, page))

    def evict_window(self, which):
        errors, rows = self.rows_of(which)
        got = yield errors
        total = 0
        for row in rows:
            for g, group in self.windows():
                keep = -(-max(group.window, group.size) // group.size) * group.size
                target = max(0, row.committed - keep) // group.size * group.size
                if target > row.cursors[g]:
                    row.cursors[g] = target
                    asked = set(self.row_entries(row, g, 0, row.allocated))
                    gone = row.tables[g].keys() - asked
                    total += len(gone)
                    row.tables[g] = {k: row.tables[g][k] for k in row.tables[g].keys() & asked}
        assert got == total

    def tokens_required_next_decode(self, which, draft=0):
        errors, rows = self.rows_of(which)
        got = yield errors
        assert got == max(
            group.size
            * sum(
                -(-(row.allocated + 1 + draft) // group.size) - -(-row.allocated // group.size)
                for row in rows
            )
            for group in self.groups
        )
