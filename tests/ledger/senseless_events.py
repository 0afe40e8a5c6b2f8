"""Events that are well-formed and mean nothing: every field is legal, and none fits the others."""

import random

import numpy as np

from kvlife.events import EVENT_TYPES, FIELDS, Digested, FieldKind

RIDS = ("r0", "r1", "r2", "r3")
# Ids, sessions and pins come from small pools, so that they meet those of earlier events.
TEXTS = ("s0", "s1", "p0", "p1", "r0", "r1")
EXTREMES = (-(1 << 31), (1 << 31) - 1, -1, 0)


class Nonsense:
    """Draws events for a layout; `layout` is asked for each time, as spaces change their size."""

    def __init__(self, seed, ledger):
        self.rng = random.Random(seed)
        self.ledger = ledger

    @property
    def layout(self):
        return self.ledger.layout

    def event(self):
        kind = self.rng.choice(EVENT_TYPES)
        values, rows, group = {}, np.empty(0, np.int32), 0
        for field in FIELDS[kind]:
            value = self.value(kind, field.kind, rows, group)
            if field.kind is FieldKind.ROWS:
                rows = value
            if field.kind is FieldKind.GROUP:
                group = value
            values[field.name] = value
        if kind is Digested:
            # One digest for each page, which are drawn before them.
            values["digests"] = np.arange(values["pages"].size, dtype=np.uint64)
        return kind(**values)

    def value(self, event_type, kind, rows, group):
        rng, layout = self.rng, self.layout
        simple = {
            FieldKind.TEXT: lambda: rng.choice(RIDS + TEXTS),
            FieldKind.MAYBE_TEXT: lambda: rng.choice((None, *RIDS)),
            FieldKind.REASON: lambda: rng.choice(event_type.REASONS),
            FieldKind.FLAG: lambda: rng.random() < 0.5,
            FieldKind.COUNT: lambda: rng.choice((0, 1, 2, 3, rng.randrange(40))),
            FieldKind.U64: lambda: rng.choice((0, 1, (1 << 64) - 1)),
            FieldKind.LENGTH: self.length,
            FieldKind.ROW: lambda: rng.randrange(layout.num_rows),
            FieldKind.MAYBE_ROW: lambda: rng.choice((None, rng.randrange(layout.num_rows))),
            FieldKind.GROUP: lambda: rng.randrange(len(layout.groups)),
            FieldKind.SPACE: lambda: rng.randrange(len(layout.spaces)),
            FieldKind.ROWS: self.rows,
            FieldKind.LENGTHS: lambda: self.lengths(rows.size),
            FieldKind.PAGES: lambda: tuple(self.pages(g.idx) for g in layout.groups),
            FieldKind.GROUP_PAGES: lambda: self.pages(group),
            FieldKind.DIGESTS: lambda: np.empty(0, np.uint64),
            FieldKind.HOST_PAGES: lambda: np.arange(rng.randrange(3), dtype=np.int32),
            FieldKind.MAYBE_HOST_PAGES: lambda: rng.choice((None, np.arange(2, dtype=np.int32))),
            FieldKind.KEYS: lambda: tuple(self.keys() for _ in layout.groups),
            FieldKind.CURSORS: lambda: tuple(self.length() for _ in layout.window_groups),
            FieldKind.CURSOR_ARRAYS: lambda: rng.choice(
                (None, tuple(self.lengths(rows.size) for _ in layout.window_groups))
            ),
            FieldKind.LINKS: lambda: self.links(event_type),
        }
        return simple[kind]()

    def length(self):
        if self.rng.random() < 0.05:
            return self.rng.choice(EXTREMES)
        return self.rng.randint(-2, self.layout.capacity + 3)

    def lengths(self, num):
        return np.array([self.length() for _ in range(num)], np.int32)

    def rows(self):
        num = self.rng.choice((0, 1, 1, 2, 3))
        return np.array(self.rng.sample(range(self.layout.num_rows), num), np.int32)

    def num_pages(self, group):
        return self.layout.spaces[self.layout.groups[group].space_idx].num_pages

    def pages(self, group):
        num = self.rng.choice((0, 0, 1, 2, 3, 7))
        high = self.num_pages(group)
        drawn = [self.rng.randrange(high) for _ in range(num)]
        if self.rng.random() < 0.5:
            space = self.ledger.spaces[self.layout.groups[group].space_idx]
            drawn = space.free.head(num).tolist()
        return np.array(drawn, np.int32)

    def keys(self):
        num = self.rng.choice((0, 1, 3, 40))
        return np.array([self.rng.choice((0, 1, 7, 1 << 63)) for _ in range(num)], np.uint64)

    def links(self, event_type):
        links = np.zeros((self.rng.choice((0, 0, 1, 3)), 4), np.int32)
        for link in links:
            group = self.rng.randrange(len(self.layout.groups))
            width = self.layout.groups[group].table_width
            second = width if event_type.__name__ == "Protected" else self.layout.num_rows
            high = self.num_pages(group)
            link[:] = (
                group,
                self.rng.randrange(second),
                self.rng.randrange(high),
                self.rng.randrange(high),
            )
        return links
