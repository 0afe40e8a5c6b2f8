"""The metrics that a condition can compare: numbers and states read off a ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import numpy as np

from kvlife.config import GroupLayout, Layout
from kvlife.errors import ConfigError
from kvlife.ledger import Ledger, PageSpace, PageState, RowState

# What a metric says of a state; None where it has no value there (a request that is not held, ...).
Value = int | str | None
Read = Callable[[Ledger], Value]
Arguments = Mapping[str, str]

_SPACE = ("space", "group")
_HOLDER = ("row", "request", "session")
_WORD = {
    "page": "N",
    "row": "N",
    "request": "ID",
    "session": "ID",
    "space": "NAME",
    "group": "NAME",
}

PAGE_STATES = tuple(state.name for state in PageState)
ROW_STATES = tuple(state.name for state in RowState)
REQUEST_STATES = ("HELD", "WAITING", "ABSENT")
SESSION_STATES = ("IN_TURN", "IDLE", "ABSENT")


@attrs.frozen(kw_only=True)
class Metric:
    """One metric: its name, what it says, and how it is read.

    `one_of` are arguments of which one must be given, `optional` those that may be. `bind` makes
    the reader for a layout, and raises `ConfigError` for an argument that names nothing in it.
    `states` maps an argument of `one_of` to the states that the metric then has; it is empty where
    the metric is a number.
    """

    name: str
    doc: str
    bind: Callable[[Layout, Arguments], Read]
    one_of: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    states: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)

    @property
    def signature(self) -> str:
        """The metric as it is written."""
        needed = " or ".join(f"{name}={_WORD[name]}" for name in self.one_of)
        if not self.optional:
            return f"{self.name}({needed})" if needed else self.name
        more = " or ".join(f"{name}={_WORD[name]}" for name in self.optional)
        return f"{self.name}({needed}, [{more}])" if needed else f"{self.name}([{more}])"


def _whole(name: str, text: str, bound: int, what: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 12:
        raise ConfigError(f"{name}={text}: wanted a whole number")
    if int(text) >= bound:
        raise ConfigError(f"{name}={text}: {what} 0 to {bound - 1}")
    return int(text)


def _group(layout: Layout, arguments: Arguments) -> GroupLayout | None:
    wanted = arguments.get("group")
    if wanted is None:
        return None
    for group in layout.groups:
        if group.name == wanted:
            return group
    known = ", ".join(group.name for group in layout.groups)
    raise ConfigError(f"group={wanted}: no such cache group; there are {known}")


def _spaces(layout: Layout, arguments: Arguments) -> tuple[int, ...]:
    """The page spaces that are asked about: by default all."""
    group = _group(layout, arguments)
    if group is not None:
        return (group.space_idx,)
    wanted = arguments.get("space")
    if wanted is None:
        return tuple(space.idx for space in layout.spaces)
    for space in layout.spaces:
        if space.name == wanted:
            return (space.idx,)
    known = ", ".join(space.name for space in layout.spaces)
    raise ConfigError(f"space={wanted}: no such page space; there are {known}")


def _of_spaces(count: Callable[[PageSpace], int]) -> Callable[[Layout, Arguments], Read]:
    def bind(layout: Layout, arguments: Arguments) -> Read:
        chosen = _spaces(layout, arguments)
        if len(chosen) == 1:
            return lambda ledger: count(ledger.spaces[chosen[0]])
        return lambda ledger: sum(count(ledger.spaces[idx]) for idx in chosen)

    return bind


def _in_state(state: PageState) -> Callable[[Layout, Arguments], Read]:
    number = int(state)
    return _of_spaces(lambda space: int(np.count_nonzero(space.state == number)))


def _evictable(space: PageSpace) -> int:
    cached = space.state == int(PageState.CACHED)
    return int(np.count_nonzero(cached & (space.refs == 0) & (space.pins == 0)))


def _of_page(read: Callable[[PageSpace, int], int | str]) -> Callable[[Layout, Arguments], Read]:
    def bind(layout: Layout, arguments: Arguments) -> Read:
        chosen = _spaces(layout, arguments)
        if len(chosen) > 1:
            known = ", ".join(space.name for space in layout.spaces)
            raise ConfigError(f"a page is one of a space: add space= (one of {known}) or group=")
        # A pool that was resized may have more; where a page is not there, it has no value.
        page = _whole("page", arguments["page"], 1 << 31, "a page is one of")

        def of(ledger: Ledger) -> Value:
            space = ledger.spaces[chosen[0]]
            return read(space, page) if page < space.num_pages else None

        return of

    return bind


def _row_of(layout: Layout, arguments: Arguments) -> Callable[[Ledger], int | None]:
    """The row that is meant by its number, or by the request or session that holds it."""
    if "row" in arguments:
        row = _whole("row", arguments["row"], layout.num_rows, "the rows are")
        return lambda _: row
    if "request" in arguments:
        rid = arguments["request"]
        return lambda ledger: ledger.requests.get(rid)
    session = arguments["session"]

    def of_session(ledger: Ledger) -> int | None:
        held = ledger.sessions.get(session)
        return None if held is None else held.row

    return of_session


def _of_row(read: Callable[[Ledger, int], int]) -> Callable[[Layout, Arguments], Read]:
    def bind(layout: Layout, arguments: Arguments) -> Read:
        row_of = _row_of(layout, arguments)

        def of(ledger: Ledger) -> Value:
            row = row_of(ledger)
            return None if row is None else read(ledger, row)

        return of

    return bind


def _pages(layout: Layout, arguments: Arguments) -> Read:
    row_of = _row_of(layout, arguments)
    group = _group(layout, arguments)
    groups = range(len(layout.groups)) if group is None else (group.idx,)

    def of(ledger: Ledger) -> Value:
        row = row_of(ledger)
        if row is None:
            return None
        return sum(int(np.count_nonzero(ledger.pages_of(row, idx))) for idx in groups)

    return of


def _cursor(layout: Layout, arguments: Arguments) -> Read:
    group = _group(layout, arguments)
    windows = layout.window_groups
    if group is None and len(windows) == 1:
        group = windows[0]
    idx = None if group is None else group.window_idx
    if idx is None:
        known = ", ".join(window.name for window in windows) or "none"
        raise ConfigError(f"cursor is that of a window group: add group= (there are: {known})")
    return _of_row(lambda ledger, row: int(ledger.rows.cursors[idx, row]))(layout, arguments)


def _state(layout: Layout, arguments: Arguments) -> Read:
    if "page" in arguments:
        return _of_page(lambda space, page: PageState(space.state[page]).name)(layout, arguments)
    if "row" in arguments:
        row = _whole("row", arguments["row"], layout.num_rows, "the rows are")
        return lambda ledger: RowState(ledger.rows.state[row]).name
    if "request" in arguments:
        return _state_of_request(arguments["request"])
    return _state_of_session(arguments["session"])


def _state_of_request(rid: str) -> Read:
    def of(ledger: Ledger) -> Value:
        if rid in ledger.requests:
            return "HELD"
        return "WAITING" if rid in ledger.waiting else "ABSENT"

    return of


def _state_of_session(session_id: str) -> Read:
    def of(ledger: Ledger) -> Value:
        session = ledger.sessions.get(session_id)
        if session is None:
            return "ABSENT"
        return "IDLE" if session.rid is None else "IN_TURN"

    return of


def _whole_state(read: Callable[[Ledger], int]) -> Callable[[Layout, Arguments], Read]:
    return lambda _layout, _arguments: read


def _rows_in(state: RowState) -> Callable[[Layout, Arguments], Read]:
    number = int(state)
    return _whole_state(lambda ledger: int(np.count_nonzero(ledger.rows.state == number)))


def _count(name: str, doc: str, count: Callable[[PageSpace], int]) -> Metric:
    return Metric(name=name, doc=doc, bind=_of_spaces(count), optional=_SPACE)


def _host(name: str, doc: str, count: Callable[[PageSpace], int]) -> Metric:
    def bind(layout: Layout, _arguments: Arguments) -> Read:
        if not layout.host_pages:
            raise ConfigError("the pools of this log have no pages of the host")
        return lambda ledger: None if ledger.host is None else count(ledger.host)

    return Metric(name=name, doc=doc, bind=bind)


def _page(name: str, doc: str, read: Callable[[PageSpace, int], int]) -> Metric:
    return Metric(name=name, doc=doc, bind=_of_page(read), one_of=("page",), optional=_SPACE)


def _row(name: str, doc: str, read: Callable[[Ledger, int], int]) -> Metric:
    return Metric(name=name, doc=doc, bind=_of_row(read), one_of=_HOLDER)


def _total(name: str, doc: str, read: Callable[[Ledger], int]) -> Metric:
    return Metric(name=name, doc=doc, bind=_whole_state(read))


def _in(name: str, doc: str, state: PageState) -> Metric:
    return Metric(name=name, doc=doc, bind=_in_state(state), optional=_SPACE)


_ALL = (
    _count("num_pages", "pages of the pools, page 0 included", lambda space: space.num_pages),
    _count("free_pages", "pages in the free list", lambda space: space.free.num_free),
    _count(
        "used_pages",
        "pages that are neither in the free list nor reserved",
        lambda space: space.num_pages - 1 - space.free.num_free,
    ),
    _in("private_pages", "pages that are PRIVATE", PageState.PRIVATE),
    _in("cached_pages", "pages that are CACHED", PageState.CACHED),
    _in("quarantined_pages", "pages that are QUARANTINED", PageState.QUARANTINED),
    _count("evictable_pages", "CACHED pages without refs and pins", _evictable),
    _count("pinned_pages", "pages with pins", lambda space: int(np.count_nonzero(space.pins > 0))),
    _count(
        "shared_pages",
        "pages with more than one ref",
        lambda space: int(np.count_nonzero(space.refs > 1)),
    ),
    _host("host_pages", "pages of the host, page 0 included", lambda host: host.num_pages),
    _host("free_host_pages", "pages in the host's free list", lambda host: host.free.num_free),
    Metric(
        name="state",
        doc="the state of a page, row, request or session",
        bind=_state,
        one_of=("page", *_HOLDER),
        optional=_SPACE,
        states={
            "page": PAGE_STATES,
            "row": ROW_STATES,
            "request": REQUEST_STATES,
            "session": SESSION_STATES,
        },
    ),
    _page("refs", "rows that reference a page", lambda space, page: int(space.refs[page])),
    _page("pins", "pins on a page", lambda space, page: int(space.pins[page])),
    Metric(
        name="pages",
        doc="pages that a row references",
        bind=_pages,
        one_of=_HOLDER,
        optional=("group",),
    ),
    _row("protected", "protected tokens", lambda ledger, row: int(ledger.rows.protected[row])),
    _row("committed", "committed tokens", lambda ledger, row: int(ledger.rows.committed[row])),
    _row("allocated", "allocated tokens", lambda ledger, row: int(ledger.rows.allocated[row])),
    _row(
        "settled",
        "settled tokens",
        lambda ledger, row: min(int(ledger.rows.settled[row]), int(ledger.rows.allocated[row])),
    ),
    _row("in_flight", "steps in flight", lambda ledger, row: int(ledger.rows.in_flight[row])),
    Metric(
        name="cursor",
        doc="the cursor of a window group",
        bind=_cursor,
        one_of=_HOLDER,
        optional=("group",),
    ),
    Metric(name="rows_held", doc="rows that are HELD", bind=_rows_in(RowState.HELD)),
    Metric(name="rows_draining", doc="rows that are DRAINING", bind=_rows_in(RowState.DRAINING)),
    Metric(name="rows_free", doc="rows that are FREE", bind=_rows_in(RowState.FREE)),
    _total("num_requests", "requests that hold a row", lambda ledger: len(ledger.requests)),
    _total("num_waiting", "requests that were retracted", lambda ledger: len(ledger.waiting)),
    _total("num_sessions", "sessions", lambda ledger: len(ledger.sessions)),
    _total("num_pins", "pins", lambda ledger: len(ledger.pins)),
    _total("open_steps", "steps in flight", lambda ledger: len(ledger.steps)),
    _total(
        "committed_tokens",
        "committed tokens of all rows",
        lambda ledger: int(ledger.rows.committed.sum(dtype=np.int64)),
    ),
    _total(
        "allocated_tokens",
        "allocated tokens of all rows",
        lambda ledger: int(ledger.rows.allocated.sum(dtype=np.int64)),
    ),
    _total("seq", "the seq of the last event", lambda ledger: ledger.next_seq - 1),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}


def kinds_of_metrics() -> Mapping[str, tuple[str, ...]]:
    """The metrics by what has to be named with them, in words."""
    kinds: dict[str, list[str]] = {}
    for metric in _ALL:
        needed = " or ".join(f"{name}={_WORD[name]}" for name in metric.one_of)
        more = " or ".join(f"{name}={_WORD[name]}" for name in metric.optional)
        words = " ".join(filter(None, (needed, more and f"[{more}]"))) or "the whole state"
        kinds.setdefault(words, []).append(metric.name)
    return {words: tuple(names) for words, names in kinds.items()}


def table_of_metrics() -> str:
    """The metrics as a Markdown table."""
    lines = ["| metric | what it is |", "| --- | --- |"]
    lines += [f"| `{metric.signature}` | {metric.doc} |" for metric in _ALL]
    return "\n".join(lines) + "\n"
