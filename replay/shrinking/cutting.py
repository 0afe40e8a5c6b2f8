"""Cutting tokens out of lives: every later length, table index and page list of theirs follows.

positions   0 ......... low ......... high ......... end
after       0 ......... low ................... end - (high - low)
[ cut away  )
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import chain
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.events import (
    Admitted,
    Event,
    FieldKind,
    Protected,
    Resumed,
    SessionRestored,
    StepSettled,
)
from kvlife.ledger import Ledger
from kvlife.replay.shrinking.lives import Life
from kvlife.replay.shrinking.narrowing import I32, only_rows
from kvlife.replay.shrinking.program import Program
from kvlife.replay.shrinking.reading import Piece
from kvlife.replay.shrinking.state import frozen
from kvlife.replay.shrinking.trial import map_fields, map_pages


@attrs.frozen
class Cut:
    """Positions [low, high) that go."""

    low: int
    high: int

    def after(self, length: int) -> int:
        """A length, in what is left."""
        return length if length <= self.low else max(self.low, length - (self.high - self.low))

    def before(self, position: int) -> int:
        """A position of what is left, in the whole."""
        return position if position < self.low else position + self.high - self.low

    def table(self, entries: dict[int, int], page_size: int) -> dict[int, int]:
        """What stands at table entries: each keeps that of its first position."""
        top = self.after((max(entries, default=-1) + 1) * page_size)
        olds = {
            new: self.before(new * page_size) // page_size for new in range(-(-top // page_size))
        }
        return {new: entries[old] for new, old in olds.items() if old in entries}


def cut_tokens(program: Program, names: Collection[int], cut: Cut) -> Program:
    """The program with these positions of these lives cut out."""
    groups = Ledger(program.config).layout.groups
    lives = dict(program.lives)
    for name in names:
        life = program.lives[name]
        lives[name] = Life(
            tuple(cut.table(life.pages[group.idx], group.page_size) for group in groups),
            tuple(cut.table(life.keys[group.idx], group.page_size) for group in groups),
        )
    sizes = [group.page_size for group in groups]
    pieces = tuple(_cut_piece(piece, names, cut, sizes) for piece in program.pieces)
    last = _cut_piece(program.last, names, cut, sizes)
    if isinstance(last.event, Protected) and last.lives[0] in names:
        last = attrs.evolve(last, event=_cut_keys(program, last.event, cut, sizes))
    lost = [_lost(program, lives, group.idx) for group in groups]
    if any(lost):
        event = map_pages(
            _without_links(last.event, lost),
            lambda group, pages: pages[~np.isin(pages, list(lost[group]))],
        )
        last = attrs.evolve(last, event=event)
    return attrs.evolve(program, pieces=pieces, lives=lives, last=last)


def _lost(program: Program, lives: dict[int, Life], group: int) -> set[int]:
    """The pages of a group that no life has any more."""
    had = {page for life in program.lives.values() for page in life.pages[group].values()}
    return had - {page for life in lives.values() for page in life.pages[group].values()}


def _cut_piece(piece: Piece, names: Collection[int], cut: Cut, sizes: list[int]) -> Piece:
    chosen = [i for i, life in enumerate(piece.lives) if life in names]
    if not chosen:
        return piece

    def lengths(value: I32, _event: Event) -> I32:
        return _replaced(value, chosen, cut.after)

    def cursors(value: tuple[I32, ...] | None, event: Event) -> tuple[I32, ...] | None:
        return None if value is None else tuple(lengths(part, event) for part in value)

    def links(value: I32, event: Event) -> I32:
        if not isinstance(event, Protected) or not value.size:
            return value
        moved = value.copy()
        for link in moved:
            size = sizes[int(link[0])]
            link[1] = cut.after(int(link[1]) * size) // size
        return frozen(moved)

    event = map_fields(
        piece.event,
        {
            FieldKind.LENGTH: lambda value, _event: cut.after(value),
            FieldKind.CURSORS: lambda value, _event: tuple(map(cut.after, value)),
            FieldKind.LENGTHS: lengths,
            FieldKind.CURSOR_ARRAYS: cursors,
            FieldKind.LINKS: links,
        },
    )
    if isinstance(event, Admitted | Resumed | SessionRestored) and event.prompt_len < 1:
        # There is no empty prompt.
        event = attrs.evolve(event, prompt_len=min(getattr(piece.event, "prompt_len", 1), 1))
    return attrs.evolve(piece, event=event)


def _replaced(values: I32, chosen: list[int], change: Callable[[int], int]) -> I32:
    found = values.copy()
    for i in chosen:
        found[i] = change(int(values[i]))
    return frozen(found)


def _cut_keys(program: Program, event: Protected, cut: Cut, sizes: list[int]) -> Protected:
    """The keys of a faulty publication, for the entries that are left between its lengths."""
    before = program.last.event
    assert isinstance(before, Protected)  # the caller looked
    start = _protected_before(program)
    keys: list[npt.NDArray[np.uint64]] = []
    for size, part in zip(sizes, before.keys, strict=True):
        named = dict(enumerate(part.tolist(), start // size))
        low, left = cut.after(start) // size, cut.table(named, size)
        found = np.array([key for entry, key in left.items() if entry >= low], np.uint64)
        found.setflags(write=False)
        keys.append(found)
    return attrs.evolve(event, keys=tuple(keys))


def _protected_before(program: Program) -> int:
    """The protected length of the faulty event's row, as its own life's pieces tell it."""
    name, length = program.last.lives[0], 0
    for piece in program.pieces:
        if piece.lives == (name,):
            event: Any = piece.event
            if isinstance(event, Protected):
                length = event.protected_len
            elif hasattr(event, "prefix_len"):
                length = event.prefix_len
            elif hasattr(event, "kept_len"):
                length = min(length, event.kept_len)
    return length


def _without_links(event: Event, lost: list[set[int]]) -> Event:
    """Links that name a page which is gone go too."""

    def links(value: I32, _event: Event) -> I32:
        stays = [not {own, new} & lost[group] for group, _at, own, new in value.tolist()]
        return frozen(value[np.array(stays, np.bool_)])

    return map_fields(event, {FieldKind.LINKS: links})


def without_places(program: Program, gone: Collection[int]) -> Program:
    """The program whose faulty batch lacks the rows at these places, and what is theirs alone."""
    last = program.last
    kept = [i for i in range(len(last.lives)) if i not in gone]
    if not kept and not isinstance(last.event, StepSettled):
        return program  # there is no empty batch
    owned = tuple(_owned(program, group) for group in range(len(program.config.groups)))
    event = only_rows(last.event, kept, owned)
    lives = tuple(last.lives[i] for i in kept)
    return attrs.evolve(program, last=Piece(event, lives))


def _owned(program: Program, group: int) -> dict[int, set[int]]:
    """The places of the faulty batch whose rows may have a page: their own, and by its key."""
    published: dict[int, set[int]] = {}
    for life in program.lives.values():
        for entry, key in life.keys[group].items():
            if entry in life.pages[group]:
                published.setdefault(key, set()).add(life.pages[group][entry])
    owned: dict[int, set[int]] = {}
    for place, name in enumerate(program.last.lives):
        its = program.lives.get(name)
        if its is None:
            continue
        shared = (published.get(key, ()) for key in its.keys[group].values())
        for page in chain(its.pages[group].values(), *shared):
            owned.setdefault(page, set()).add(place)
    return owned


def without_lives(program: Program, gone: Collection[int]) -> Program:
    """The program without all that lives did; the faulty event stays."""
    pieces = []
    for piece in program.pieces:
        if not piece.lives or not set(piece.lives) & set(gone):
            pieces.append(piece)
            continue
        kept = [i for i, name in enumerate(piece.lives) if name not in gone]
        if kept:
            empty: tuple[dict[int, set[int]], ...] = tuple({} for _ in program.config.groups)
            event = only_rows(piece.event, kept, empty)
            pieces.append(Piece(event, tuple(piece.lives[i] for i in kept)))
    return attrs.evolve(program, pieces=tuple(pieces))
