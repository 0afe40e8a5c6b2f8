"""Well-formed events of every kind, for whatever stores, sends or shows events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from kvlife.config import Layout
from kvlife.events import EVENT_TYPES, FIELDS, Event, FieldKind

I32 = npt.NDArray[np.int32]


def one_of_each(layout: Layout, seed: int = 0) -> list[Event]:
    """One event of each kind with fields drawn from the seed; well-formed, and without sense."""
    random = np.random.default_rng(seed)
    return [_event(event_type, layout, random) for event_type in EVENT_TYPES]


def _event(event_type: type[Event], layout: Layout, random: np.random.Generator) -> Event:
    num_rows = int(random.integers(1, min(4, layout.num_rows)))
    fields: dict[str, Any] = {  # Any: each kind of event has fields of its own
        field.name: _DRAWN[field.kind](event_type, layout, random, num_rows)
        for field in FIELDS[event_type]
    }
    return event_type(**fields)


def _ints(random: np.random.Generator, high: int, size: int) -> I32:
    return random.integers(0, high, size).astype(np.int32)


def _pages(layout: Layout, random: np.random.Generator, group: int) -> I32:
    space = layout.spaces[layout.groups[group].space_idx]
    return _ints(random, space.num_pages, int(random.integers(0, 5)))


def _links(event_type: type[Event], layout: Layout, random: np.random.Generator) -> I32:
    num, group = int(random.integers(0, 3)), layout.groups[-1]
    by_row = event_type.__name__ != "Protected"
    bound = layout.num_rows if by_row else group.table_width
    num_pages = layout.spaces[group.space_idx].num_pages
    columns = (
        np.full(num, group.idx),
        *(random.integers(0, n, num) for n in (bound, *[num_pages] * 2)),
    )
    return np.stack(columns, axis=1).astype(np.int32)


Draw = Callable[[type[Event], Layout, np.random.Generator, int], object]

_DRAWN: dict[FieldKind, Draw] = {
    FieldKind.TEXT: lambda _t, _l, random, _n: f"name-{random.integers(1000)}",
    FieldKind.MAYBE_TEXT: lambda _t, _l, random, _n: f"é{random.integers(9)}",
    FieldKind.REASON: lambda event_type, _l, random, _n: str(
        random.choice(getattr(event_type, "REASONS"))  # noqa: B009  # not every event has reasons
    ),
    FieldKind.FLAG: lambda _t, _l, random, _n: bool(random.integers(2)),
    FieldKind.COUNT: lambda _t, _l, random, _n: int(random.integers(0, 1 << 62)),
    FieldKind.U64: lambda _t, _l, random, _n: int(random.integers(0, 1 << 63)),
    FieldKind.LENGTH: lambda _t, _l, random, _n: int(random.integers(0, 1 << 31)),
    FieldKind.ROW: lambda _t, layout, random, _n: int(random.integers(layout.num_rows)),
    FieldKind.MAYBE_ROW: lambda _t, _l, _r, _n: None,
    FieldKind.GROUP: lambda _t, layout, _r, _n: layout.groups[-1].idx,
    FieldKind.SPACE: lambda _t, layout, _r, _n: layout.spaces[-1].idx,
    FieldKind.ROWS: lambda _t, layout, random, num: random.permutation(layout.num_rows)[
        :num
    ].astype(np.int32),
    FieldKind.LENGTHS: lambda _t, _l, random, num: _ints(random, 1 << 20, num),
    FieldKind.PAGES: lambda _t, layout, random, _n: tuple(
        _pages(layout, random, group.idx) for group in layout.groups
    ),
    FieldKind.GROUP_PAGES: lambda _t, layout, random, num: _ints(
        random, layout.spaces[layout.groups[-1].space_idx].num_pages, num
    ),
    FieldKind.DIGESTS: lambda _t, _l, random, num: random.integers(0, 1 << 63, num).astype(
        np.uint64
    ),
    FieldKind.HOST_PAGES: lambda _t, layout, random, _n: _ints(
        random, layout.host_pages or 1 << 30, 3
    ),
    FieldKind.MAYBE_HOST_PAGES: lambda _t, layout, random, _n: _ints(
        random, layout.host_pages or 1 << 30, 2
    ),
    FieldKind.KEYS: lambda _t, layout, random, _n: tuple(
        random.integers(0, 1 << 63, 2).astype(np.uint64) for _ in layout.groups
    ),
    FieldKind.CURSORS: lambda _t, layout, random, _n: tuple(
        int(random.integers(0, 1 << 20)) for _ in layout.window_groups
    ),
    FieldKind.CURSOR_ARRAYS: lambda _t, _l, _r, _n: None,
    FieldKind.LINKS: lambda event_type, layout, random, _n: _links(event_type, layout, random),
}
