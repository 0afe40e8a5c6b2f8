"""Renumbering: rows, pages, keys and steps from 1 on, in pools as large as that needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.config import PoolConfig, compile_layout
from kvlife.events import (
    FIELDS,
    Event,
    FieldKind,
    Resized,
    StepDispatched,
    StepSettled,
)
from kvlife.replay.shrinking.state import frozen
from kvlife.replay.shrinking.trial import map_fields, map_pages

I32 = npt.NDArray[np.int32]
Events = tuple[Event, ...]
Form = tuple[PoolConfig, Events]

_LENGTHS = {FieldKind.LENGTH, FieldKind.LENGTHS}


def forms(events: Events, spare: int) -> Iterator[Callable[[Form], Form]]:
    """Ways to write a program in smaller numbers, each to be tried on its own.

    `spare` pages are left in each space, for lives that are changed and need others than they had.
    """
    yield _with_rows
    yield partial(_with_pages, spare=spare)
    yield partial(_with_host_pages, spare=spare)
    yield _with_keys
    yield _with_steps
    yield _with_namespaces
    for of in (events[:-1], events):
        yield partial(_with_capacity, of=of)


class _Numbers(dict[int, int]):
    """New numbers from 1 on, given out as they are asked for; 0 stays 0."""

    def __init__(self) -> None:
        super().__init__({0: 0})

    def __missing__(self, old: int) -> int:
        self[old] = len(self)
        return self[old]

    def each(self, values: Iterable[int]) -> I32:
        """The new numbers of some."""
        return frozen(np.array([self[value] for value in values], np.int32))


def _with_rows(form: Form) -> Form:
    config, events = form
    rows = _Numbers()
    changes: dict[FieldKind, Callable[[Any, Event], Any]] = {
        FieldKind.ROW: lambda row, _event: rows[row],
        FieldKind.MAYBE_ROW: lambda row, _event: None if row is None else rows[row],
        FieldKind.ROWS: lambda values, _event: rows.each(values.tolist()),
        FieldKind.LINKS: lambda value, event: _links_of_rows(value, event, rows),
    }
    renamed = tuple(map_fields(event, changes) for event in events)
    return attrs.evolve(config, max_requests=max(len(rows) - 1, 1)), renamed


def _links_of_rows(value: I32, event: Event, rows: _Numbers) -> I32:
    if not hasattr(event, "copies"):
        return value
    found = value.copy()
    found[:, 1] = rows.each(value[:, 1].tolist())
    return frozen(found)


def _with_pages(form: Form, spare: int) -> Form:
    config, events = form
    layout = compile_layout(config)
    if any(isinstance(event, Resized) for event in events):
        return form
    names = [_Numbers() for _ in layout.spaces]

    def renamed(group: int, pages: I32) -> I32:
        return names[layout.groups[group].space_idx].each(pages.tolist())

    events = tuple(map_pages(event, renamed) for event in events)
    sizes = [max(len(number), 2) + spare for number in names]
    groups = tuple(
        attrs.evolve(group, num_pages=sizes[layout.groups[idx].space_idx])
        for idx, group in enumerate(config.groups)
    )
    if len(groups) == 1:
        groups = (attrs.evolve(groups[0], num_pages=None),)
    return attrs.evolve(config, groups=groups, num_pages=sizes[0]), events


def _with_host_pages(form: Form, spare: int) -> Form:
    config, events = form
    if not config.host_pages:
        return form
    pages = _Numbers()
    changes: dict[FieldKind, Callable[[Any, Event], Any]] = {
        FieldKind.HOST_PAGES: lambda value, _event: pages.each(value.tolist()),
        FieldKind.MAYBE_HOST_PAGES: lambda value, _event: (
            None if value is None else pages.each(value.tolist())
        ),
    }
    renamed = tuple(map_fields(event, changes) for event in events)
    return attrs.evolve(config, host_pages=max(len(pages), 2) + spare), renamed


def _with_keys(form: Form) -> Form:
    config, events = form
    keys = _Numbers()

    def each(value: tuple[Any, ...], _event: Event) -> tuple[npt.NDArray[np.uint64], ...]:
        found = [np.array([keys[key] for key in part.tolist()], np.uint64) for part in value]
        for part in found:
            part.setflags(write=False)
        return tuple(found)

    return config, tuple(map_fields(event, {FieldKind.KEYS: each}) for event in events)


def _with_steps(form: Form) -> Form:
    config, events = form
    named = [event.step for event in events if isinstance(event, StepDispatched | StepSettled)]
    steps = {old: new for new, old in enumerate(sorted(set(named)))}
    return config, tuple(
        attrs.evolve(event, step=steps[event.step])
        if isinstance(event, StepDispatched | StepSettled)
        else event
        for event in events
    )


def _with_namespaces(form: Form) -> Form:
    config, events = form
    spaces = _Numbers()
    return config, tuple(
        map_fields(event, {FieldKind.U64: lambda value, _event: spaces[value]}) for event in events
    )


def _with_capacity(form: Form, of: Events) -> Form:
    config, events = form
    top = max((length for event in of for length in lengths_of(event)), default=1)
    return attrs.evolve(config, max_context_len=max(min(top, config.max_context_len), 1)), events


def lengths_of(event: Event) -> list[int]:
    """All lengths in tokens that an event names, prompts apart."""
    found: list[int] = []
    for field in FIELDS[type(event)]:
        if field.kind in _LENGTHS and field.name != "prompt_len":
            found += np.atleast_1d(getattr(event, field.name)).tolist()
    return found


def weight(events: Events) -> tuple[int, ...]:
    """How large events are: their number, rows, tokens, pages, keys and links."""
    rows = tokens = pages = keys = links = 0
    for event in events:
        for field in FIELDS[type(event)]:
            value = getattr(event, field.name)
            match field.kind:
                case FieldKind.ROWS:
                    rows += len(value)
                case FieldKind.LENGTH:
                    tokens += abs(value)
                case FieldKind.LENGTHS:
                    tokens += int(np.abs(value).sum())
                case FieldKind.PAGES:
                    pages += sum(map(len, value))
                case FieldKind.GROUP_PAGES | FieldKind.HOST_PAGES:
                    pages += len(value)
                case FieldKind.MAYBE_HOST_PAGES:
                    pages += 0 if value is None else len(value)
                case FieldKind.KEYS:
                    keys += sum(int(np.count_nonzero(part)) for part in value)
                case FieldKind.LINKS:
                    links += len(value)
                case _:
                    pass
    return len(events), rows, tokens, pages, keys, links
