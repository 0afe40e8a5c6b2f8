"""Choosing what to evict; nothing here changes the tree."""

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.prefix.eviction_order import EvictionOrder
from kvlife.prefix.layout import IndexLayout, Pages
from kvlife.prefix.nodes import NodeStore
from kvlife.prefix.results import Cut, Hole, Locked

MIN_REACH = 32
"""How many units of a leaf are looked at together where holes make their yield unknown."""


@attrs.define(slots=True)
class Haul:
    """What has been chosen so far, and how much is still wanted of each group."""

    short: list[int]
    pages: list[list[Pages]]
    cuts: list[Cut] = attrs.field(factory=list)
    holes: list[Hole] = attrs.field(factory=list)

    @classmethod
    def of(cls, wanted: Sequence[int]) -> "Haul":
        """Begin with nothing chosen."""
        return cls(list(wanted), [[] for _ in wanted])

    def is_short(self) -> bool:
        """Say whether more is wanted."""
        return any(short > 0 for short in self.short)

    def add(self, group: int, pages: Pages) -> None:
        """Add pages of a group, without zeros."""
        self.pages[group].append(pages)
        self.short[group] -= len(pages)

    def gathered(self) -> tuple[Pages, ...]:
        """Return the chosen pages of each group."""
        return tuple(
            np.concatenate(pages) if pages else np.zeros(0, np.int32) for pages in self.pages
        )


@attrs.frozen(slots=True)
class Witness:
    """A locked page that keeps a leaf from being evicted."""

    group: int
    page: Pages


def take_leaf_tails(store: NodeStore, order: EvictionOrder, haul: Haul, locked: Locked) -> None:
    """Take units from the tails of leaves, and of what becomes a leaf, until nothing is short."""
    columns = store.columns
    dropped: dict[int, int] = {}
    while haul.is_short():
        node = order.pop()
        if node is None:
            return
        units = store.num_units(node)
        taken, witness = _take_tail(store, node, units, haul, locked)
        if taken:
            haul.cuts.append(Cut(node, units - taken))
        elif witness is not None:
            order.park(node, witness.group, witness.page)
        if taken == units:
            parent = columns.parent_at[node]
            dropped[parent] = dropped.get(parent, 0) + 1
            if dropped[parent] == columns.children_at[parent] and not store.is_root(parent):
                order.promote(parent)


def _take_tail(
    store: NodeStore, node: int, units: int, haul: Haul, locked: Locked
) -> tuple[int, Witness | None]:
    """Take the unlocked tail of a leaf, as much as is short; return its units, and what ends it."""
    layout, left, short = store.layout, units, haul.short
    while left and (least := _least_units(layout, short)) > 0:
        reach = min(left, max(least, MIN_REACH) if layout.window_groups else least)
        pages = store.pages([(node, left - reach, left)])
        num_free, witness = _free_tail(layout, pages, reach, locked)
        use = min(num_free, _enough_units(layout, pages, reach, short))
        for g, per_unit in enumerate(layout.pages_per_unit):
            tail = pages[g][(reach - use) * per_unit :]
            haul.add(g, tail[tail != 0] if layout.windows[g] else tail)
        left -= use
        if use == num_free and witness is not None:
            return units - left, witness
    return units - left, None


def _least_units(layout: IndexLayout, short: Sequence[int]) -> int:
    """Return how many units it takes at least to yield what is short."""
    return max(-(-n // per) for n, per in zip(short, layout.pages_per_unit, strict=True))


def _enough_units(
    layout: IndexLayout, pages: tuple[Pages, ...], reach: int, short: Sequence[int]
) -> int:
    """Return how many of the last `reach` units suffice, or `reach` where they do not."""
    if not layout.window_groups:
        return min(reach, _least_units(layout, short))
    enough = 0
    for g, wanted in enumerate(short):
        if wanted > 0:
            held = np.count_nonzero(pages[g].reshape(reach, -1), axis=1)[::-1]
            enough = max(enough, int(np.searchsorted(np.cumsum(held), wanted)) + 1)
    return min(enough, reach)


def _free_tail(
    layout: IndexLayout, pages: tuple[Pages, ...], units: int, locked: Locked
) -> tuple[int, Witness | None]:
    """Count the units after the last one with a locked page, and name that page."""
    last, witness = -1, None
    for g, per_unit in enumerate(layout.pages_per_unit):
        mask = locked_among(layout, g, pages[g], locked)
        if not mask.any():
            continue
        at = int(np.flatnonzero(mask)[-1])
        if at // per_unit > last:
            last, witness = at // per_unit, Witness(g, pages[g][at : at + 1])
    return units - 1 - last, witness


def locked_among(
    layout: IndexLayout, group: int, pages: Pages, locked: Locked
) -> npt.NDArray[np.bool_]:
    """Ask which of the pages are locked; holes are not, and are not asked about."""
    if layout.windows[group] is None:
        return locked(group, pages)
    present = pages != 0
    mask = np.zeros(len(pages), np.bool_)
    mask[present] = locked(group, pages[present])
    return mask


def take_window_pages(
    store: NodeStore, order: EvictionOrder, group: int, haul: Haul, locked: Locked
) -> None:
    """Take unlocked pages of a window group alone, node by node, each from its beginning."""
    while haul.is_short():
        node = order.pop()
        if node is None:
            return
        pages = store.all_pages(np.array([node]), group)
        present = np.flatnonzero(pages)
        mask = locked(group, pages[present])
        if mask.all():
            order.park(node, group, pages[present])
            continue
        chosen = present[~mask][: haul.short[group]]
        haul.holes.append(Hole(node, group, chosen))
        haul.add(group, pages[chosen])


def num_evictable(store: NodeStore, group: int, locked: Locked) -> int:
    """Count the pages of a full group that leaf tails would yield if all of them were wanted."""
    layout, columns = store.layout, store.columns
    nodes = store.nodes()
    if not len(nodes):
        return 0
    sizes = columns.end[nodes] - columns.end[columns.parent[nodes]]
    ends = np.cumsum(sizes)
    last = np.full(len(nodes), -1)
    for g, per_unit in enumerate(layout.pages_per_unit):
        mask = locked_among(layout, g, store.all_pages(nodes, g), locked)
        units = np.flatnonzero(mask) // per_unit
        owners = np.searchsorted(ends, units, side="right")
        # Where an owner stands more than once, its last unit is written last.
        latest = np.full(len(nodes), -1)
        latest[owners] = units
        last = np.maximum(last, latest)
    # Of a node, what comes after its last locked unit is free, unless something below is locked.
    free = np.minimum(sizes, ends - 1 - last)
    free[_blocked_from_below(store, nodes[last >= 0])[nodes]] = 0
    return int(free.sum()) * layout.pages_per_unit[group]


def _blocked_from_below(store: NodeStore, blocked: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Mark every node that has one of `blocked` below it, in steps that double in length."""
    top = store.columns.top
    ancestor = store.columns.parent[:top].astype(np.int64)
    ancestor[store.columns.children[:top] < 0] = 0
    marked = np.zeros(top, np.bool_)
    marked[ancestor[blocked]] = True
    while ancestor.any():
        marked[ancestor[marked]] = True
        ancestor = ancestor[ancestor]
    return marked


def also_locked(locked: Locked, others: Sequence[Pages]) -> Locked:
    """Make a `locked` that says yes to `others`, per group, as well."""

    def is_locked(group: int, pages: Pages) -> npt.NDArray[np.bool_]:
        return locked(group, pages) | np.isin(pages, others[group])

    return is_locked
