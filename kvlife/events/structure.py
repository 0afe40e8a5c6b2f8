"""The structure of events: ids in range, dtypes, lengths that agree. Structure is no invariant."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kvlife.errors import EventError
from kvlife.events.catalogue import FIELDS, Event
from kvlife.events.fields import Field, FieldKind

if TYPE_CHECKING:
    from kvlife.config import Layout

MAX_ID_BYTES = 1 << 12


def check_structure(event: Event, layout: Layout) -> None:
    """Raise `EventError` naming the event, the field and what is wrong with it."""
    checks = _PLANS.get(type(event))
    if checks is None:
        raise EventError(f"{type(event).__name__} is no event")
    for field, check in checks:
        problem = check(getattr(event, field.name), event, layout)
        if problem:
            raise _error(event, field, problem)


def check_decoded(event: Event, layout: Layout, known_rows: np.ndarray | None) -> None:
    """As `check_structure`, for an event from bytes, whose fields have types and sizes that fit.

    `known_rows` were found to be rows of this layout, each once, and need no second look.
    """
    for field, check in _PLANS_OF_DECODED[type(event)]:
        value = getattr(event, field.name)
        if value is None or value is known_rows:
            continue
        problem = check(value, event, layout)
        if problem:
            raise _error(event, field, problem)


def _error(event: Event, field: Field, problem: str) -> EventError:
    return EventError(
        f"{type(event).__name__}.{field.name} must be {field.kind.value} ({field.doc}): {problem}"
    )


def _is_int(value: object, low: int, high: int) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        return f"got {type(value).__name__}"
    return "" if low <= value < high else f"{value} is out of [{low}, {high})"


def _array(value: object, dtype: type, ndim: int = 1) -> str:
    if not isinstance(value, np.ndarray):
        return f"got {type(value).__name__}, wanted an array"
    if value.dtype != dtype or value.ndim != ndim:
        return f"got {value.dtype} with {value.ndim} dimensions"
    return ""


def _in_range(value: np.ndarray, high: int) -> str:
    # As unsigned numbers the negative ones are the highest.
    if value.size and int(value.view(np.uint32).max()) >= high:
        bad = int(np.flatnonzero((value < 0) | (value >= high))[0])
        return f"entry {bad} is {value[bad]}, out of [0, {high})"
    return ""


def _text(value: object, _event: Event, _layout: Layout) -> str:
    if not isinstance(value, str):
        return f"got {type(value).__name__}"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "it holds a lone surrogate"
    return "" if size <= MAX_ID_BYTES else f"{size} bytes, at most {MAX_ID_BYTES}"


def _maybe_text(value: object, event: Event, layout: Layout) -> str:
    return "" if value is None else _text(value, event, layout)


def _reason(value: object, event: Event, _layout: Layout) -> str:
    known: tuple[str, ...] = getattr(type(event), "REASONS", ())
    return "" if value in known else f"{value!r} is none of {', '.join(known)}"


def _flag(value: object, _event: Event, _layout: Layout) -> str:
    return "" if isinstance(value, bool) else f"got {type(value).__name__}"


def _maybe_row(value: object, _event: Event, layout: Layout) -> str:
    return "" if value is None else _is_int(value, 0, layout.num_rows)


def _rows(value: object, _event: Event, layout: Layout) -> str:
    problem = _array(value, np.int32)
    if problem or not isinstance(value, np.ndarray):
        return problem
    problem = _in_range(value, layout.num_rows)
    if not problem and value.size > 1:
        ordered = np.sort(value)
        twice = np.flatnonzero(ordered[1:] == ordered[:-1])
        problem = f"row {ordered[twice[0]]} stands twice" if twice.size else ""
    return problem


def _lengths(value: object, event: Event, _layout: Layout) -> str:
    rows: np.ndarray = event.rows  # type: ignore[union-attr]  # LENGTHS stands beside ROWS only
    problem = _array(value, np.int32)
    if problem or not isinstance(value, np.ndarray):
        return problem
    return "" if value.size == rows.size else f"{value.size} entries for {rows.size} rows"


def _page_array(value: object, group: int, layout: Layout) -> str:
    problem = _array(value, np.int32)
    if problem or not isinstance(value, np.ndarray):
        return problem
    return _in_range(value, layout.spaces[layout.groups[group].space_idx].num_pages)


def _per_group(value: object, layout: Layout, check: Callable[[object, int], str]) -> str:
    if not isinstance(value, tuple) or len(value) != len(layout.groups):
        return f"wanted one array for each of {len(layout.groups)} groups"
    for group, pages in enumerate(value):
        problem = check(pages, group)
        if problem:
            return f"group {layout.groups[group].name!r}: {problem}"
    return ""


def _pages(value: object, _event: Event, layout: Layout) -> str:
    return _per_group(value, layout, lambda pages, group: _page_array(pages, group, layout))


def _group_pages(value: object, event: Event, layout: Layout) -> str:
    group: int = event.group  # type: ignore[union-attr]  # GROUP_PAGES stands beside GROUP only
    problem = _is_int(group, 0, len(layout.groups))
    return problem or _page_array(value, group, layout)


def _digests(value: object, event: Event, _layout: Layout) -> str:
    # DIGESTS stands beside GROUP_PAGES only.
    pages: np.ndarray = event.pages  # type: ignore[union-attr,assignment]
    problem = _array(value, np.uint64)
    if problem or not isinstance(value, np.ndarray):
        return problem
    return "" if value.size == pages.size else f"{value.size} entries for {pages.size} pages"


def _host_pages(value: object, _event: Event, layout: Layout) -> str:
    problem = _array(value, np.int32)
    if problem or not isinstance(value, np.ndarray):
        return problem
    # Without a host space they are names of pages that the ledger knows nothing of.
    return _in_range(value, layout.host_pages or 1 << 31)


def _maybe_host_pages(value: object, event: Event, layout: Layout) -> str:
    return "" if value is None else _host_pages(value, event, layout)


def _keys(value: object, _event: Event, layout: Layout) -> str:
    return _per_group(value, layout, lambda keys, _group: _array(keys, np.uint64))


def _cursors(value: object, _event: Event, layout: Layout) -> str:
    wanted = len(layout.window_groups)
    if not isinstance(value, tuple) or len(value) != wanted:
        return f"wanted one int for each of {wanted} window groups"
    return next((p for p in (_is_int(item, -(1 << 31), 1 << 31) for item in value) if p), "")


def _cursor_arrays(value: object, event: Event, layout: Layout) -> str:
    if value is None:
        return ""
    wanted = len(layout.window_groups)
    if not isinstance(value, tuple) or len(value) != wanted:
        return f"wanted one array for each of {wanted} window groups"
    return next((p for p in (_lengths(item, event, layout) for item in value) if p), "")


def _links(value: object, event: Event, layout: Layout) -> str:
    problem = _array(value, np.int32, 2)
    if problem or not isinstance(value, np.ndarray):
        return problem
    if value.shape[1] != 4:
        return f"got shape {value.shape}"
    problem = _in_range(value[:, 0], len(layout.groups))
    if problem or not value.size:
        return problem
    for group in layout.groups:
        chosen = value[value[:, 0] == group.idx] if len(layout.groups) > 1 else value
        bound = group.table_width if type(event).__name__ == "Protected" else layout.num_rows
        num_pages = layout.spaces[group.space_idx].num_pages
        bounds = ((1, bound), (2, num_pages), (3, num_pages))
        problem = next((p for col, high in bounds if (p := _in_range(chosen[:, col], high))), "")
        if problem:
            return problem
    return ""


_CHECKS: dict[FieldKind, Callable[[object, Event, Layout], str]] = {
    FieldKind.TEXT: _text,
    FieldKind.MAYBE_TEXT: _maybe_text,
    FieldKind.REASON: _reason,
    FieldKind.FLAG: _flag,
    FieldKind.COUNT: lambda value, _event, _layout: _is_int(value, 0, 1 << 63),
    FieldKind.U64: lambda value, _event, _layout: _is_int(value, 0, 1 << 64),
    FieldKind.LENGTH: lambda value, _event, _layout: _is_int(value, -(1 << 31), 1 << 31),
    FieldKind.ROW: lambda value, _event, layout: _is_int(value, 0, layout.num_rows),
    FieldKind.MAYBE_ROW: _maybe_row,
    FieldKind.GROUP: lambda value, _event, layout: _is_int(value, 0, len(layout.groups)),
    FieldKind.SPACE: lambda value, _event, layout: _is_int(value, 0, len(layout.spaces)),
    FieldKind.ROWS: _rows,
    FieldKind.LENGTHS: _lengths,
    FieldKind.PAGES: _pages,
    FieldKind.GROUP_PAGES: _group_pages,
    FieldKind.DIGESTS: _digests,
    FieldKind.HOST_PAGES: _host_pages,
    FieldKind.MAYBE_HOST_PAGES: _maybe_host_pages,
    FieldKind.KEYS: _keys,
    FieldKind.CURSORS: _cursors,
    FieldKind.CURSOR_ARRAYS: _cursor_arrays,
    FieldKind.LINKS: _links,
}
# By event, its fields and what checks each; enums are slow as keys.
_PLANS: dict[type, tuple[tuple[Field, Callable[[object, Event, Layout], str]], ...]] = {
    event_type: tuple((field, _CHECKS[field.kind]) for field in fields)
    for event_type, fields in FIELDS.items()
}
# What bytes can say of these kinds is right whatever the layout is.
_SELF_EVIDENT = frozenset(
    {
        FieldKind.REASON,
        FieldKind.FLAG,
        FieldKind.U64,
        FieldKind.LENGTH,
        FieldKind.LENGTHS,
        FieldKind.KEYS,
        FieldKind.CURSORS,
        FieldKind.CURSOR_ARRAYS,
    }
)
_PLANS_OF_DECODED = {
    event_type: tuple((field, check) for field, check in plan if field.kind not in _SELF_EVIDENT)
    for event_type, plan in _PLANS.items()
}
