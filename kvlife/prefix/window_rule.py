"""The window rule: how much of a found prefix can be hit, where window pages are gone."""

import numpy as np
import numpy.typing as npt

from kvlife.prefix.layout import IndexLayout, Pages


def usable_units(layout: IndexLayout, pages: tuple[Pages, ...], units: int, floor: int) -> int:
    """Return the most units, up to `units`, that a request can start from.

    A hit of h tokens needs every window page of [0, min(floor, h)) and of [max(0, h - W + 1), h).
    `pages` covers at least `units`, 0 where a page is gone; `floor` is in tokens.
    """
    gone = [(g, pages[g] == 0) for g in layout.window_groups]
    for g, holes in gone:
        floor_pages = -(-floor // layout.page_sizes[g])
        first = _first(holes[:floor_pages])
        if first is not None:
            units = min(units, first // layout.pages_per_unit[g])
    if all(_window_is_whole(layout, g, holes, units) for g, holes in gone):
        return units
    ends = np.arange(units + 1)
    usable = np.ones(units + 1, np.bool_)
    for g, holes in gone:
        page_size = layout.page_sizes[g]
        counted = np.concatenate(([0], np.cumsum(holes)))
        first_pages = np.maximum(0, ends * layout.align - _window(layout, g) + 1) // page_size
        usable &= counted[ends * layout.pages_per_unit[g]] == counted[first_pages]
    return int(np.flatnonzero(usable)[-1])


def _first(mask: npt.NDArray[np.bool_]) -> int | None:
    return int(mask.argmax()) if mask.any() else None


def _window(layout: IndexLayout, group: int) -> int:
    window = layout.windows[group]
    return 0 if window is None else window


def _window_is_whole(
    layout: IndexLayout, group: int, holes: npt.NDArray[np.bool_], units: int
) -> bool:
    end_len = units * layout.align
    first_page = max(0, end_len - _window(layout, group) + 1) // layout.page_sizes[group]
    return not holes[first_page : units * layout.pages_per_unit[group]].any()
