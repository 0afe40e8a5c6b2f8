"""Random lives of requests: events that are right for a ledger."""

import attrs
import numpy as np
from host_lives import HostLives
from short_events import NO_LINKS, ints

from kvlife import transitions
from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Evicted,
    Marked,
    Pinned,
    Protected,
    Released,
    Resized,
    RolledBack,
    SessionClosed,
    SessionRestored,
    SessionSaved,
    StepDispatched,
    StepSettled,
    Unpinned,
    WindowEvicted,
)
from kvlife.ledger import PageState, RowState, derive
from kvlife.ledger.spans import indices, num_at


class Lives(HostLives):
    """Proposes events that are right for a ledger; each kind returns None where it has no use."""

    def __init__(self, ledger, rng, *, writers=False):
        self.ledger = ledger
        self.rng = rng
        self.writers = writers
        self.layout = ledger.layout
        self.groups = range(len(self.layout.groups))
        self.prefixes = []
        self.names = 0
        self.step = 0

    def name(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    def no_pages(self):
        return tuple(ints() for _ in self.groups)

    def rows_in(self, state):
        return np.flatnonzero(self.ledger.rows.state == state).tolist()

    def running(self):
        return sorted(self.ledger.requests.values())

    def between(self, low, high):
        """A number from one bound to the other, in whichever order a broken state has them."""
        return self.rng.randint(min(low, high), max(low, high))

    def some(self, values, most=4):
        values = list(values)
        self.rng.shuffle(values)
        return values[: self.between(1, most)] if values else []

    def naming_gone(self, event):
        """The event with just the pages that it ought to let go."""
        gone_at = derive(self.ledger, event).gone_at
        pages = tuple(
            ints(*self.ledger.tables[g][indices(at)].tolist()) for g, at in enumerate(gone_at)
        )
        if isinstance(event, WindowEvicted):
            return attrs.evolve(event, pages=pages[event.group])
        return attrs.evolve(event, pages=pages)

    def admit(self):
        rows = self.rows_in(RowState.FREE)
        return self._bind(Admitted, self.name("r"), rows) if rows else None

    def _bind(self, kind, rid, rows, **more):
        prefix, pages, cursors = self._prefix()
        if "restored_len" in more:
            more["restored_len"] = prefix
        return kind(
            rid=rid,
            row=self.rng.choice(rows),
            namespace=0,
            prompt_len=self.between(1, 12),
            prefix_len=prefix,
            evict_floor=0,
            evicted_len=cursors,
            pages=pages,
            **more,
        )

    def _prefix(self):
        """A published prefix whose pages are all still CACHED, or nothing."""
        nothing = 0, self.no_pages(), (0,) * len(self.layout.window_groups)
        if not self.prefixes or self.rng.random() < 0.3:
            return nothing
        prefix, pages = self.rng.choice(self.prefixes)
        for group, listed in zip(self.layout.groups, pages, strict=True):
            space = self.ledger.spaces[group.space_idx]
            known = listed[listed < space.num_pages]
            cached = (space.state[known] == PageState.CACHED) & (space.group[known] == group.idx)
            if (
                known.size != listed.size
                or not cached.all()
                or np.unique(listed).size < listed.size
            ):
                return nothing
        return prefix, pages, (0,) * len(self.layout.window_groups)

    def allocate(self):
        rows = [row for row in self.some(self.running()) if self.room(row) > 0]
        if not rows:
            return None
        lens = [
            int(self.ledger.rows.allocated[row]) + self.between(1, min(6, self.room(row)))
            for row in rows
        ]
        cursors = self._skips(rows, lens)
        event = Allocated(ints(*rows), ints(*lens), self.no_pages(), cursors)
        taken = self._taking(event)
        return None if taken is None else attrs.evolve(event, pages=taken)

    def _taking(self, event):
        """FREE pages for the entries that an event fills, or None where there are too few."""
        taken, used = [], [0] * len(self.ledger.spaces)
        for group, at in zip(self.layout.groups, derive(self.ledger, event).taken_at, strict=True):
            free, skip = self.ledger.spaces[group.space_idx].free, used[group.space_idx]
            num = num_at(at)
            if skip + num > free.num_free:
                return None
            taken.append(ints(*free.head(skip + num)[skip:].tolist()))
            used[group.space_idx] += num
        return tuple(taken)

    def room(self, row):
        return self.layout.capacity - int(self.ledger.rows.allocated[row])

    def _skips(self, rows, lens):
        """Now and then, empty rows skip the front of their windows."""
        if not self.layout.window_groups or self.rng.random() < 0.7:
            return None
        return tuple(
            ints(
                *(
                    int(transitions.page_floor(length, group.page_size))
                    if self.ledger.rows.allocated[row] == 0
                    else int(self.ledger.rows.cursors[group.window_idx, row])
                    for row, length in zip(rows, lens, strict=True)
                )
            )
            for group in self.layout.window_groups
        )

    def commit(self):
        rows = self.some(self.running())
        columns = self.ledger.rows
        whole = self.rng.random() < 0.6
        lens = [
            top if whole else self.between(int(columns.committed[row]), top)
            for row in rows
            if columns.committed[row]
            <= (top := int(min(columns.settled[row], columns.allocated[row])))
        ]
        return Committed(ints(*rows), ints(*lens)) if rows and len(lens) == len(rows) else None

    def protect(self):
        columns = self.ledger.rows
        tops = columns.allocated if self.layout.scheduled else columns.committed
        rows = [
            row
            for row in self.running()
            if columns.session[row] is None
            and tops[row] >= columns.protected[row] + self.layout.align
        ]
        if not rows:
            return None
        row = self.rng.choice(rows)
        top = tops[row]
        new = int(transitions.page_floor(int(top), self.layout.align))
        if new <= columns.protected[row]:
            return None
        keys, links = [], []
        for group in self.layout.groups:
            low, high = int(columns.protected[row]) // group.page_size, new // group.page_size
            base = row * group.table_width
            pages = self.ledger.tables[group.idx][base + low : base + high]
            fresh = [self.rng.getrandbits(63) | 1 if page else 0 for page in pages.tolist()]
            keys.append(np.array(fresh, np.uint64))
            links += self._duplicate(group, row, low, keys[-1], pages)
        if links:
            return Protected(row, new, tuple(keys), np.array(links, np.int32))
        self.prefixes.append((new, tuple(self._table(g, row, new) for g in self.groups)))
        return Protected(row, new, tuple(keys), NO_LINKS)

    def _duplicate(self, group, row, low, keys, pages):
        """Now and then, a link from one of the pages to a CACHED one elsewhere; sets its key."""
        space = self.ledger.spaces[group.space_idx]
        cached = (space.state == PageState.CACHED) & (space.group == group.idx)
        base = row * group.table_width
        own = self.ledger.tables[group.idx][base : base + group.table_width]
        others = np.setdiff1d(np.flatnonzero(cached), own)
        spots = [i for i, page in enumerate(pages.tolist()) if page and keys[i]]
        if not others.size or not spots or self.rng.random() < 0.6:
            return []
        spot, canonical = self.rng.choice(spots), self.rng.choice(others.tolist())
        keys[spot] = space.key[canonical]
        return [(group.idx, low + spot, int(pages[spot]), canonical)]

    def _table(self, g, row, length):
        group = self.layout.groups[g]
        base = row * group.table_width
        return ints(*self.ledger.tables[g][base : base + length // group.page_size].tolist())

    def roll_back(self):
        columns = self.ledger.rows
        rows = [row for row in self.some(self.running()) if self._may_cut(row)]
        if not rows:
            return None
        ends = [
            self.between(int(columns.committed[row]), int(columns.allocated[row])) for row in rows
        ]
        lens = [self.between(self._lowest(row), int(columns.committed[row])) for row in rows]
        ends = [
            max(length, end - self.rng.choice((0, 0, 3)))
            for end, length in zip(ends, lens, strict=True)
        ]
        event = RolledBack(ints(*rows), ints(*ends), ints(*lens), self.no_pages(), NO_LINKS)
        return self.naming_gone(event)

    def _may_cut(self, row):
        columns = self.ledger.rows
        top = columns.allocated if self.layout.scheduled else columns.committed
        return columns.protected[row] <= columns.committed[row] <= top[row] and self._unskipped(row)

    def _unskipped(self, row):
        """Whether the windows of the committed end are there, and no skip has passed them."""
        committed = int(self.ledger.rows.committed[row])
        return all(
            self.ledger.rows.cursors[group.window_idx, row]
            <= transitions.cursor_bound(committed, group.window, group.page_size)
            for group in self.layout.window_groups
        )

    def _lowest(self, row):
        columns = self.ledger.rows
        cut = max(int(columns.cursors[:, row].max(initial=0)) > 0, self.rng.random() < 0.5)
        return int(columns.committed[row] if cut else columns.protected[row])

    def evict_window(self):
        rows = self.some(self.rows_in(RowState.HELD))
        if not rows or not self.layout.window_groups:
            return None
        group = self.rng.choice(self.layout.window_groups)
        columns = self.ledger.rows
        new = []
        for row in rows:
            committed, cursor = int(columns.committed[row]), columns.cursors[group.window_idx, row]
            bound = int(transitions.cursor_bound(committed, group.window, group.page_size))
            if cursor > bound:
                return None
            new.append(bound)
        return self.naming_gone(WindowEvicted(group.idx, ints(*rows), ints(*new), ints()))

    def evict(self):
        lists = []
        for group in self.layout.groups:
            space = self.ledger.spaces[group.space_idx]
            idle = (space.state == PageState.CACHED) & (space.refs == 0) & (space.pins == 0)
            pages = np.flatnonzero(idle & (space.group == group.idx)).tolist()
            lists.append(ints(*self.some(pages)))
        return Evicted("pressure", tuple(lists)) if any(map(len, lists)) else None

    def release(self):
        owners = {pin.owner for pin in self.ledger.pins.values()}
        rids = sorted((self.ledger.requests.keys() | self.ledger.waiting.keys()) - owners)
        if not rids:
            return None
        rid = self.rng.choice(rids)
        row = self.ledger.requests.get(rid)
        backup = self.ledger.waiting[rid].backup if row is None else None
        host = ints() if backup is None else backup
        return self._whole(Released(rid, row, "aborted", self.no_pages(), host))

    def _whole(self, event):
        return event if event.row is None else self.naming_gone(event)

    def save(self):
        rids = [rid for rid, row in self.ledger.requests.items() if self._may_cut(row)]
        if not rids:
            return None
        rid = self.rng.choice(sorted(rids))
        row = self.ledger.requests[rid]
        session = self.ledger.rows.session[row] or self.name("s")
        kept = int(self.ledger.rows.committed[row])
        return self.naming_gone(SessionSaved(session, rid, row, kept, self.no_pages()))

    def _idle_sessions(self):
        return sorted(sid for sid, s in self.ledger.sessions.items() if s.rid is None)

    def restore(self):
        if not self._idle_sessions():
            return None
        sid = self.rng.choice(self._idle_sessions())
        row, columns = self.ledger.sessions[sid].row, self.ledger.rows
        kept = int(columns.committed[row])
        if columns.cursors[:, row].max(initial=0) == 0 and self.rng.random() < 0.4:
            kept = int(transitions.page_floor(self.between(0, kept), self.layout.align))
        rid = self.name("r")
        return self.naming_gone(SessionRestored(sid, rid, row, kept, kept + 3, self.no_pages()))

    def close(self):
        if not self.ledger.sessions:
            return None
        sid = self.rng.choice(sorted(self.ledger.sessions))
        session = self.ledger.sessions[sid]
        row = session.row if session.rid is None else None
        return self._whole(SessionClosed(sid, row, self.no_pages()))

    def dispatch(self):
        chosen = self.some(self.running())
        if not chosen:
            return None
        # What was published before it was written is written in the step that reads it.
        columns = self.ledger.rows
        late = [row for row in self.running() if columns.protected[row] > columns.committed[row]]
        rows = chosen + [row for row in late if row not in chosen]
        self.step += 1
        return StepDispatched(self.step, ints(*rows))

    def settle(self):
        if not self.ledger.steps:
            return None
        step = next(iter(self.ledger.steps))
        columns = self.ledger.rows
        drained = [
            int(row)
            for row in self.ledger.steps[step].rows
            if columns.state[row] == RowState.DRAINING and columns.in_flight[row] == 1
        ]
        return self.naming_gone(StepSettled(step, ints(*drained), self.no_pages()))

    def pin(self):
        group = self.rng.choice(self.layout.groups)
        state = self.ledger.spaces[group.space_idx].state
        busy = (state == PageState.PRIVATE) | (state == PageState.CACHED)
        pages = self.some(np.flatnonzero(busy).tolist())
        if not pages:
            return None
        owner = self.rng.choice([None, None, *sorted(self.ledger.requests)])
        writes = self.writers and self.rng.random() < 0.2
        return Pinned(self.name("p"), "copy", writes, owner, group.idx, ints(*pages))

    def unpin(self):
        if not self.ledger.pins:
            return None
        pin_id = self.rng.choice(sorted(self.ledger.pins))
        pin = self.ledger.pins[pin_id]
        return Unpinned(pin_id, pin.group, pin.pages)

    def resize(self):
        space = self.rng.randrange(len(self.ledger.spaces))
        used = np.flatnonzero(self.ledger.spaces[space].state != PageState.FREE)
        least = int(used.max()) + 1
        now = self.ledger.spaces[space].num_pages
        return Resized(space, self.between(max(least, now - 2), now + 2))

    def mark(self):
        return Marked("note", idle=False)

    KINDS = (
        *(("admit", "allocate", "commit", "protect") * 4),
        *("allocate", "commit", "protect", "release", "release", "evict_window", "evict_window"),
        *("roll_back", "evict", "evict", "retract", "resume", "save", "restore", "restore"),
        *("close", "dispatch", "settle", "settle", "pin", "unpin", "unpin", "resize", "mark"),
    )

    def propose(self):
        """The next event; there is always one."""
        while True:
            event = getattr(self, self.rng.choice(self.KINDS))()
            if event is not None:
                return event
