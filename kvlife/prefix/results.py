"""What the prefix index answers: plain values that never change later."""

from collections.abc import Callable

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.prefix.layout import Pages

Locked = Callable[[int, Pages], npt.NDArray[np.bool_]]
"""Says of the pages of a group which are referenced or pinned; it is never asked about page 0."""


@attrs.frozen(slots=True)
class Position:
    """Where a path ends in the tree: a hint that saves walking it again.

    `depth` counts units from the root. A position is only good for tokens and a namespace that
    agree with those it was made for up to `depth`; the index notices by itself when the tree
    has changed under it.
    """

    node: int
    depth: int
    stamp: int


ORIGIN = Position(0, 0, 0)
"""The position of the empty prefix, in any namespace."""


@attrs.frozen(slots=True)
class Match:
    """The longest usable hit of some tokens.

    `matched_len`: tokens, whole units, within the limit and under the window rule.
    `hit_len`: the same without the limit. `found_len`: how much of the tokens the tree holds,
    windows aside. `pages`: per group int32 over [0, matched_len), 0 where a window page is gone.
    """

    matched_len: int
    hit_len: int
    found_len: int
    pages: tuple[Pages, ...]
    position: Position


@attrs.frozen(slots=True)
class Extent:
    """How far some tokens are in the tree already, for who wants to publish the rest.

    `pages`: the canonical ones per group over [start_len, found_len), 0 where one is gone.
    Good for one `insert`, as long as nothing else changes the index before.
    """

    start_len: int
    found_len: int
    pages: tuple[Pages, ...]
    position: Position
    namespace: bytes
    version: int


@attrs.frozen(slots=True)
class Cut:
    """The units of one node from `keep` on go; with `keep` 0 the node goes."""

    node: int
    keep: int


@attrs.frozen(slots=True)
class Hole:
    """Pages of a window group that go alone, by their indices among the node's of that group."""

    node: int
    group: int
    pages_idx: npt.NDArray[np.int64]


@attrs.frozen(slots=True)
class Victims:
    """A choice of pages to evict; nothing has happened to them yet.

    `pages`: per group int32, each page once, no zeros. May hold fewer than were asked for.
    """

    pages: tuple[Pages, ...]
    cuts: tuple[Cut, ...]
    holes: tuple[Hole, ...]
    version: int

    @property
    def num_found(self) -> tuple[int, ...]:
        """How many pages were found in each group."""
        return tuple(len(pages) for pages in self.pages)
