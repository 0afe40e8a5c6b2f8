"""What the model of an engine holds: rows, requests, sessions, pins, steps and published prefixes.

No page has a stored state here. It follows from who names the page: one that is published is
CACHED, else one that a row references is PRIVATE, else one with pins is QUARANTINED, else FREE.
"""

from collections import Counter
from dataclasses import dataclass, field

NO_ERRORS = frozenset()


@dataclass(frozen=True)
class Group:
    """A cache group: `size` tokens a page, `window` or None, and the name of its page space."""

    name: str
    size: int
    window: int | None
    space: str


@dataclass
class Row:
    """A row in use; `tables[g]` holds the referenced entries alone, table index to page."""

    number: int
    rid: str | None
    namespace: str
    prompt_len: int
    floor: int
    protected: int
    cursors: dict
    tables: list
    committed: int = 0
    allocated: int = 0
    settled: int | None = None
    session: str | None = None
    steps: list = field(default_factory=list)
    hands: int = 0


@dataclass
class Session:
    """A session and how many turns have ended."""

    row: Row
    num_turns: int


@dataclass(frozen=True)
class Waiting:
    """A retracted request; `backup` maps (group, table index) to a host page, empty without one."""

    namespace: str
    committed: int
    backup: dict


@dataclass(frozen=True)
class Pin:
    """A pin of pages of one group."""

    group: int
    pages: tuple
    writes: bool
    owner: str | None


@dataclass
class Step:
    """A step in flight: its rows, their allocated lengths then, and what left them since."""

    rows: list
    noted: dict
    pinned: list = field(default_factory=list)


class ModelState:
    """The state of the model, and questions about it."""

    def __init__(self, groups, num_pages, num_rows, capacity, host_pages=0):
        self.groups = groups
        self.host_pages = host_pages
        self.num_pages = dict(num_pages)
        self.num_rows = num_rows
        self.capacity = capacity
        self.align = max(group.size for group in groups)
        self.base = next((g for g, group in enumerate(groups) if group.window is None), 0)
        self.rows = {}
        self.requests = {}
        self.waiting = {}
        self.sessions = {}
        self.pins = {}
        self.steps = {}
        self.aborted = set()
        self.posted = []
        self.last_step = None
        # Per space, cached pages that the command at hand is about to lock.
        self.spared = {}
        # Per group: (namespace, tokens to the end of the unit, page within the unit) -> page.
        self.published = [{} for _ in groups]

    # -- arithmetic ------------------------------------------------------------------------

    def windows(self):
        return [(g, group) for g, group in enumerate(self.groups) if group.window is not None]

    def bound(self, g, length):
        """How far a cursor may go so that the query after `length` tokens sees its window."""
        group = self.groups[g]
        return max(0, length - group.window + 1) // group.size * group.size

    def reach(self, g, floor):
        """The floor, rounded up to pages: what no window ever takes."""
        return -(-floor // self.groups[g].size)

    def entries(self, g, low, high, floor, cursor):
        """The table indices that a row references of the pages wholly above `low`, to `high`."""
        size, window = self.groups[g].size, self.groups[g].window
        indices = range(-(-low // size), -(-high // size))
        if window is None:
            return list(indices)
        return [k for k in indices if k < self.reach(g, floor) or k >= cursor // size]

    def row_entries(self, row, g, low, high):
        return self.entries(g, low, high, row.floor, row.cursors.get(g, 0))

    def keeps_window(self, row, committed, allocated):
        """Whether a row cut to these lengths still has every page that it would ask for then."""
        for g, group in self.windows():
            cursor = row.cursors[g]
            begins = max(min(cursor, self.bound(g, committed)) // group.size, 0)
            gone = range(max(self.reach(g, row.floor), begins), cursor // group.size)
            if any(k < -(-allocated // group.size) for k in gone):
                return False
        return True

    def key(self, namespace, tokens, g, k):
        """The name of page `k` of a group: all tokens to the end of the unit that it lies in."""
        per_unit = self.align // self.groups[g].size
        end = (k // per_unit + 1) * self.align
        return namespace, tokens[:end].tobytes(), k % per_unit

    def canonical(self, namespace, tokens, g, k):
        return self.published[g].get(self.key(namespace, tokens, g, k))

    # -- pages -----------------------------------------------------------------------------

    def groups_of(self, space):
        return [g for g, group in enumerate(self.groups) if group.space == space]

    def refs(self, space):
        """References by page."""
        return Counter(
            page
            for row in self.rows.values()
            for g in self.groups_of(space)
            for page in row.tables[g].values()
        )

    def num_pins(self, space):
        """Pins by page, those of steps included."""
        mine = set(self.groups_of(space))
        held = [(pin.group, pin.pages) for pin in self.pins.values()]
        held += [(g, (page,)) for step in self.steps.values() for g, page in step.pinned]
        return Counter(page for g, pages in held if g in mine for page in pages)

    def cached(self, space):
        return {page for g in self.groups_of(space) for page in self.published[g].values()}

    def locked(self, space):
        return set(self.refs(space)) | set(self.num_pins(space)) | self.spared.get(space, set())

    def states(self, space):
        """The name of each page's state."""
        cached, refs, pins = self.cached(space), self.refs(space), self.num_pins(space)
        named = ["RESERVED"]
        for page in range(1, self.num_pages[space]):
            if page in cached:
                named.append("CACHED")
            elif refs[page]:
                named.append("PRIVATE")
            else:
                named.append("QUARANTINED" if pins[page] else "FREE")
        return named

    def free(self, space):
        return {page for page, name in enumerate(self.states(space)) if name == "FREE"}

    def host_states(self):
        """The name of each host page's state; one that a backup names is that request's."""
        if not self.host_pages:
            return []
        kept = {page for waiting in self.waiting.values() for page in waiting.backup.values()}
        pages = range(1, self.host_pages)
        return ["RESERVED", *("PRIVATE" if page in kept else "FREE" for page in pages)]

    def under_write(self, row, g, low, high):
        """Whether something outside writes a page on which positions [low, high) lie."""
        size = self.groups[g].size
        touched = range(low // size, -(-high // size)) if high > low else ()
        pages = {row.tables[g].get(k) for k in touched}
        return any(
            pin.writes and pin.group == g and pages & set(pin.pages) for pin in self.pins.values()
        )

    def written(self, row, low, high):
        return any(self.under_write(row, g, low, high) for g in range(len(self.groups)))

    # -- finding ---------------------------------------------------------------------------

    def usable(self, namespace, tokens, length, floor):
        """Whether a hit of `length` tokens has all its pages: whole, or those of the windows."""
        for g, group in enumerate(self.groups):
            for k in range(length // group.size):
                needed = (
                    group.window is None
                    or k < self.reach(g, floor)
                    or k >= max(0, length - group.window + 1) // group.size
                )
                if needed and self.canonical(namespace, tokens, g, k) is None:
                    return False
        return True

    def hit_len(self, namespace, tokens, limit, floor):
        """The longest usable prefix of at most `limit` tokens, in units."""
        lengths = range(min(len(tokens), limit) // self.align * self.align, 0, -self.align)
        return next((n for n in lengths if self.usable(namespace, tokens, n, floor)), 0)

    # -- evicting --------------------------------------------------------------------------

    def evictable(self, g):
        """The pages of a group that could go: leaf tails without a lock, or window pages alone."""
        space = self.groups[g].space
        if self.groups[g].window is not None:
            locked = self.locked(space)
            return {page for page in self.published[g].values() if page not in locked}
        stuck = []
        for other, group in enumerate(self.groups):
            locked = self.locked(group.space)
            stuck += [
                (namespace, path)
                for (namespace, path, _), page in self.published[other].items()
                if page in locked
            ]
        return {
            page
            for (namespace, path, _), page in self.published[g].items()
            if not any(ns == namespace and deeper.startswith(path) for ns, deeper in stuck)
        }

    def check_victims(self, victims):
        """What went was published and unlocked, and nothing that hung below it has stayed."""
        for g, keys in enumerate(victims):
            locked = self.locked(self.groups[g].space)
            for key in keys:
                page = self.published[g][key]
                assert page not in locked, f"page {page} of group {g} was evicted while locked"
        for g, keys in enumerate(victims):
            if self.groups[g].window is not None:
                continue
            for namespace, path, _ in keys:
                for other in range(len(self.groups)):
                    stayed = [
                        key
                        for key in self.published[other].keys() - victims[other]
                        if key[0] == namespace and key[1].startswith(path)
                    ]
                    assert not stayed, f"{len(stayed)} pages stayed below an evicted one"

    def forget(self, victims):
        self.check_victims(victims)
        for g, keys in enumerate(victims):
            for key in keys:
                del self.published[g][key]
