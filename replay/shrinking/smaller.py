"""Single changes that make a program smaller: a row, page, key or link less, a shorter length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np

from kvlife.config import compile_layout
from kvlife.events import (
    FIELDS,
    Event,
    Evicted,
    FieldKind,
    Pinned,
    Protected,
    Retracted,
    StepDispatched,
)
from kvlife.replay.shrinking.compact import lengths_of
from kvlife.replay.shrinking.cutting import Cut
from kvlife.replay.shrinking.narrowing import only_rows
from kvlife.replay.shrinking.program import Program
from kvlife.replay.shrinking.reading import Piece
from kvlife.replay.shrinking.state import frozen

Way = Callable[[], Program]

# Events whose pages, keys or links are no consequence of lengths.
_CHOOSES = (Evicted, Pinned, Protected, Retracted)
_LISTS = {FieldKind.GROUP_PAGES, FieldKind.HOST_PAGES, FieldKind.LINKS}


def thinner_events(program: Program) -> list[Way]:
    """One row less in a step, or one page, key or link less in an event that chooses its own."""
    ways: list[Way] = []
    for place, piece in enumerate((*program.pieces, program.last)):
        last = place == len(program.pieces)
        if isinstance(piece.event, StepDispatched) and len(piece.lives) > 1 and not last:
            ways += [
                _later(program, place, _without_row(piece, i)) for i in range(len(piece.lives))
            ]
        if last or type(piece.event).__name__ in ("Evicted", "Pinned", "Protected", "Retracted"):
            ways += [
                _later(program, place, attrs.evolve(piece, event=event))
                for event in _thinner(piece.event)
            ]
    return ways


def smaller_events(program: Program) -> list[Way]:
    """A length less in an event: none, half, or one token less."""
    align = compile_layout(program.config).align
    return [
        _later(program, place, attrs.evolve(piece, event=event))
        for place, piece in enumerate((*program.pieces, program.last))
        for event in _smaller(piece.event, align)
    ]


def _later(program: Program, place: int, piece: Piece) -> Way:
    def changed() -> Program:
        if place == len(program.pieces):
            return attrs.evolve(program, last=piece)
        pieces = (*program.pieces[:place], piece, *program.pieces[place + 1 :])
        return attrs.evolve(program, pieces=pieces)

    return changed


def _without_row(piece: Piece, i: int) -> Piece:
    kept = [place for place in range(len(piece.lives)) if place != i]
    return Piece(only_rows(piece.event, kept, ()), tuple(piece.lives[place] for place in kept))


def _thinner(event: Event) -> Iterator[Event]:
    for field in FIELDS[type(event)]:
        value = getattr(event, field.name)
        if field.kind in _LISTS or (field.kind == FieldKind.MAYBE_HOST_PAGES and value is not None):
            for i in range(len(value)):
                yield _with(event, field.name, frozen(np.delete(value, i, axis=0)))
            if field.kind == FieldKind.MAYBE_HOST_PAGES:
                yield _with(event, field.name, None)
        elif field.kind == FieldKind.PAGES:
            for group, pages in enumerate(value):
                for i in range(len(pages)):
                    yield _with(event, field.name, _put(value, group, frozen(np.delete(pages, i))))
        elif field.kind == FieldKind.KEYS:
            for group, keys in enumerate(value):
                for i in np.flatnonzero(keys).tolist():
                    fewer = keys.copy()
                    fewer[i] = 0
                    yield _with(event, field.name, _put(value, group, frozen(fewer)))


def _smaller(event: Event, align: int) -> Iterator[Event]:
    for field in FIELDS[type(event)]:
        value = getattr(event, field.name)
        if field.kind == FieldKind.LENGTH:
            for less in _less(value, align, 1 if field.name == "prompt_len" else 0):
                yield _with(event, field.name, less)
        elif field.kind == FieldKind.LENGTHS:
            for i in range(len(value)):
                for less in _less(int(value[i]), align):
                    shorter = value.copy()
                    shorter[i] = less
                    yield _with(event, field.name, frozen(shorter))
        elif field.kind == FieldKind.CURSORS:
            for i, cursor in enumerate(value):
                for less in _less(cursor, align):
                    yield _with(event, field.name, _put(value, i, less))
        elif field.kind == FieldKind.CURSOR_ARRAYS and value is not None:
            yield _with(event, field.name, None)


def _less(length: int, align: int, least: int = 0) -> list[int]:
    """What to try for a length: the least, half of it in whole pages or not, a page or one less."""
    if length < 0:
        return [int(length / 2), length + 1] if length < -1 else []
    half = length // 2
    tried = (least, half // align * align, half, length - align, length - 1)
    return [less for less in dict.fromkeys(tried) if least <= less < length]


def _with(event: Event, name: str, value: object) -> Event:
    # The fields of one class among those of the union, which mypy cannot see.
    return attrs.evolve(event, **{name: value})  # type: ignore[arg-type]


def _put(values: tuple[Any, ...], idx: int, value: object) -> tuple[Any, ...]:  # Any: of a field
    return (*values[:idx], value, *values[idx + 1 :])


def boundaries(program: Program, life: int) -> list[int]:
    """Every length that an event names for a life, and 0, in order."""
    found = {0}
    for piece in (*program.pieces, program.last):
        for place, name in enumerate(piece.lives):
            if name == life:
                found.update(_lengths_at(piece.event, place, len(piece.lives)))
    return sorted(length for length in found if length >= 0)


def _lengths_at(event: Event, place: int, num_rows: int) -> list[int]:
    lengths = [*lengths_of(event), getattr(event, "prompt_len", 0)]
    if num_rows < 2:
        return lengths
    return [
        int(getattr(event, field.name)[place])
        for field in FIELDS[type(event)]
        if field.kind == FieldKind.LENGTHS
    ]


def sharing(program: Program, life: int, cut: Cut) -> set[int]:
    """The life, and those that have the same page where the cut begins."""
    names = {life}
    for group in compile_layout(program.config).groups:
        entry = cut.low // group.page_size
        page = program.lives[life].pages[group.idx].get(entry)
        if page is not None:
            names.update(
                name
                for name, other in program.lives.items()
                if other.pages[group.idx].get(entry) == page
            )
    return names
