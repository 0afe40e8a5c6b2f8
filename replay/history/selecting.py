"""Which events of a log are asked for: by kind, page, row, request, step and time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import pairwise
from math import isfinite

import attrs
import numpy as np

from kvlife.config import GroupLayout, Layout
from kvlife.errors import ConfigError
from kvlife.events import (
    BY_NAME,
    FIELDS,
    Admitted,
    Event,
    FieldKind,
    Pinned,
    Recorded,
    Released,
    Resumed,
    Retracted,
    SessionRestored,
    SessionSaved,
    StepSettled,
    Unpinned,
)
from kvlife.ledger import Ledger
from kvlife.log import LogRun, UnknownEvent
from kvlife.log.names import StretchNames

# These give a request a row.
BINDS = (Admitted, Resumed, SessionRestored)
_UNBINDS = (Released, Retracted, SessionSaved)
_PAGE_KINDS = (FieldKind.PAGES, FieldKind.GROUP_PAGES)

_WHOLE = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_SPANS = "give A:B, A: or :B, B not included, or one A"


@attrs.frozen(kw_only=True)
class Span:
    """Numbers in [low, high); None leaves a side open."""

    low: float | None = None
    high: float | None = None

    def __contains__(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value < self.high)

    @classmethod
    def parse(cls, option: str, text: str | None, *, whole: bool = False) -> Span | None:
        """`A:B`, `A:`, `:B`, or `A` for what begins with A alone; raises `ConfigError`.

        `whole`: they are whole numbers.
        """
        if text is None:
            return None
        first, colon, last = text.partition(":")
        if whole and any(side and not _WHOLE.fullmatch(side) for side in (first, last)):
            raise ConfigError(f"{option} {text!r}: a step is a whole number: {_SPANS}")
        try:
            number = int if whole else float
            low, high = (number(side) if side else None for side in (first, last))
        except ValueError:
            low = high = None
        if not all(isfinite(side or 0) for side in (low, high)) or (low is None and high is None):
            raise ConfigError(f"{option} {text!r}: {_SPANS}")
        if not colon and low is not None:
            high = low + 1
        if low is not None and high is not None and high <= low:
            raise ConfigError(f"{option} {text!r}: holds nothing, as B is not included")
        return cls(low=low, high=high)


def parse_kinds(names: tuple[str, ...]) -> frozenset[str]:
    """The event kinds of these names, in any case; raises `ConfigError` for one that is none."""
    known = {name.lower(): name for name in (*BY_NAME, "unknown")}
    for name in names:
        if name.lower() not in known:
            near = get_close_matches(name.lower(), known, 1)
            meant = f"did you mean {known[near[0]]}? " if near else ""
            kinds = ", ".join(known.values())
            raise ConfigError(f"--kind {name!r} is no kind of event: {meant}Known are {kinds}")
    return frozenset(known[name.lower()] for name in names)


def find_group(layout: Layout, name: str | None) -> GroupLayout:
    """The cache group of a name (None: the base group); raises `ConfigError`."""
    if name is None:
        return layout.groups[layout.base]
    for group in layout.groups:
        if group.name == name:
            return group
    known = ", ".join(group.name for group in layout.groups)
    raise ConfigError(f"--group {name!r}: the log's cache groups are {known}")


def refuse_page(page: int, space: str, num_pages: int, when: str) -> None:
    """Raise `ConfigError` for a page that a page space of so many pages does not have."""
    if page == 0:
        raise ConfigError("page 0 is reserved for padded writes, and never handed out")
    if not 0 < page < num_pages:
        raise ConfigError(
            f"page {page} is out of range: page space {space} has pages [1, {num_pages}) {when}"
        )


@attrs.frozen(kw_only=True)
class Selection:
    """What is asked for; all that is given must hold. `page` is (page space or None, page).

    A request's events are those that name it, or its row while it holds it.
    """

    kinds: frozenset[str] = frozenset()
    page: tuple[int | None, int] | None = None
    row: int | None = None
    request: str | None = None
    steps: Span | None = None
    seconds: Span | None = None

    @property
    def names_something(self) -> bool:
        """Whether parts of a log can be passed over that do not name what is asked for."""
        return not (self.page is None and self.row is None and self.request is None)

    def select(
        self, run: LogRun, start: int, stop: int, row: int | None = None
    ) -> Iterator[Recorded]:
        """The events asked for in [start, stop); at `start` the request holds `row`."""
        follower = None if self.request is None else RequestRows(self.request, row)
        for item in self._read(run, start, stop, follower):
            # The request's row must be followed whatever else is asked for.
            if follower is not None and not follower.concerns(item.event):
                continue
            if self._fits(item, run.layout):
                yield item

    def _read(
        self, run: LogRun, start: int, stop: int, follower: RequestRows | None
    ) -> Iterator[Recorded]:
        if not self.names_something:
            yield from run.events(start, stop)
            return
        for first_seq, next_seq, names in stretches_between(run, start, stop):
            if names is None or self._may_be_in(names, follower):
                yield from run.events(first_seq, next_seq)

    def _may_be_in(self, names: StretchNames, follower: RequestRows | None) -> bool:
        return (
            (
                (self.page is None or names.names_page(*self.page))
                and (self.row is None or names.names_row(self.row))
                # What a request's row does must be followed whatever else is asked for.
            )
            if follower is None
            else follower.may_be_in(names)
        )

    def _fits(self, item: Recorded, layout: Layout) -> bool:
        event = item.event
        if self.kinds and _kind(event) not in self.kinds:
            return False
        if self.steps is not None and item.step not in self.steps:
            return False
        if self.seconds is not None and item.time_ns / 1e9 not in self.seconds:
            return False
        if self.row is not None and not names_row(event, self.row):
            return False
        return self.page is None or names_page(event, *self.page, layout)


def _kind(event: object) -> str:  # an unknown kind stands in for an event
    return "unknown" if isinstance(event, UnknownEvent) else type(event).__name__


def names_row(event: Event, row: int) -> bool:
    """Whether an event names a row."""
    if getattr(event, "row", None) == row:
        return True
    rows = getattr(event, "drained" if isinstance(event, StepSettled) else "rows", None)
    return rows is not None and bool((rows == row).any())


def names_page(event: Event, space_idx: int | None, page: int, layout: Layout) -> bool:
    """Whether an event names a page of a page space, or of the host for None."""
    for field in FIELDS.get(type(event), ()):
        value = getattr(event, field.name)
        if field.kind in (FieldKind.HOST_PAGES, FieldKind.MAYBE_HOST_PAGES):
            lists = [value] if space_idx is None and value is not None else []
        elif field.kind is FieldKind.PAGES:
            lists = [
                pages
                for pages, group in zip(value, layout.groups, strict=False)
                if group.space_idx == space_idx
            ]
        elif field.kind is FieldKind.GROUP_PAGES:
            group = layout.groups[event.group]  # type: ignore[union-attr]  # stands beside a group
            lists = [value] if group.space_idx == space_idx else []
        elif field.kind is FieldKind.LINKS and len(value):
            spaces = np.array([group.space_idx for group in layout.groups])
            lists = [value[spaces[value[:, 0]] == space_idx, 2:]]
        else:
            continue
        if any(bool((pages == page).any()) for pages in lists):
            return True
    return False


class RequestRows:
    """Follows one request through the events: the row it holds, and the pins it owns."""

    def __init__(self, rid: str, row: int | None = None) -> None:
        self.rid = rid
        self.row = row
        self._draining: int | None = None
        self._pins: set[str] = set()
        self._rows: object = None
        self._in_rows = False

    def start_from(self, ledger: Ledger) -> None:
        """Begin in a state, and not behind the event that was seen last."""
        self.row, self._rows = ledger.requests.get(self.rid), None
        self._draining = None
        self._pins = {name for name, pin in ledger.pins.items() if pin.owner == self.rid}

    @property
    def goes_on(self) -> bool:
        """Whether later events may concern the request without naming it."""
        return self.row is not None or self._draining is not None or bool(self._pins)

    def may_be_in(self, names: StretchNames) -> bool:
        """Whether the next stretch, which names these, may hold events of the request."""
        return self.goes_on or names.names_request(self.rid)

    def concerns(self, event: Event) -> bool:
        """Whether the next event of the log concerns the request."""
        if isinstance(event, BINDS):
            return self._is_bound(event)
        if isinstance(event, _UNBINDS):
            return self._is_unbound(event)
        if isinstance(event, Pinned | Unpinned):
            return self._is_pin(event)
        if isinstance(event, StepSettled):
            return self._drains(event)
        row = self.row
        if row is None:
            return False
        if getattr(event, "row", None) == row:
            return True
        rows = getattr(event, "rows", None)
        if rows is None:
            return False
        # The rows of a batch come as one array for as long as it lives.
        if rows is not self._rows:
            self._rows, self._in_rows = rows, bool((rows == row).any())
        return self._in_rows

    def _is_bound(self, event: Admitted | Resumed | SessionRestored) -> bool:
        if event.row == self._draining:
            self._draining = None
        if event.rid != self.rid:
            return False
        self.row, self._rows = event.row, None
        return True

    def _is_unbound(self, event: Released | Retracted | SessionSaved) -> bool:
        if event.rid != self.rid:
            return False
        if not isinstance(event, SessionSaved):
            # A row in flight lets go of its pages later, with a step that settles.
            let_go = any(pages.size for pages in event.pages)
            self._draining = None if let_go else event.row
            self._pins.clear()
        self.row = None
        return True

    def _is_pin(self, event: Pinned | Unpinned) -> bool:
        if isinstance(event, Unpinned):
            known = event.pin_id in self._pins
            self._pins.discard(event.pin_id)
            return known
        if event.owner == self.rid:
            self._pins.add(event.pin_id)
            return True
        return False

    def _drains(self, event: StepSettled) -> bool:
        if self._draining is None or not (event.drained == self._draining).any():
            return False
        self._draining = None
        return True


def stretches_between(
    run: LogRun, start: int, stop: int
) -> Iterator[tuple[int, int, StretchNames | None]]:
    """The parts of [start, stop) by stretch of the log, each with what it names, if known."""
    stretches = list(run.stretches())
    bounds = [*(stretch.first_seq for stretch in stretches), stop]
    for stretch, (begin, end) in zip(stretches, pairwise(bounds), strict=True):
        low, high = max(begin, start), min(end, stop)
        if low < high:
            yield low, high, stretch.names
