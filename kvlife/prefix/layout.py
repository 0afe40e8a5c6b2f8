"""Which pages a unit of the prefix index holds, and where they lie in a node's storage."""

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.errors import ConfigError

MAX_PAGE_SIZE = 256

Pages = npt.NDArray[np.int32]


@attrs.frozen(slots=True, init=False)
class IndexLayout:
    """The cache groups as the index sees them.

    `page_sizes[g]` is in tokens and divides the largest, `align`; `windows[g]` is the sliding
    window in tokens, the query included, or None for full attention. A *unit* is `align` tokens
    and holds `pages_per_unit[g]` pages of each group. The pages of full groups stand side by side
    in one lane (`full_stride` of them a unit), those of window groups in another.

    Raises ConfigError where the sizes do not fit each other.
    """

    page_sizes: tuple[int, ...]
    windows: tuple[int | None, ...]
    base: int
    align: int
    pages_per_unit: tuple[int, ...]
    full_groups: tuple[int, ...]
    window_groups: tuple[int, ...]
    full_stride: int
    window_stride: int
    lane_columns: tuple[slice, ...]

    def __init__(
        self,
        page_sizes: Sequence[int],
        windows: Sequence[int | None],
        base: int | None = None,
    ) -> None:
        """Check the sizes and derive the rest; `base` is derived where it is left out."""
        _require_sizes(page_sizes, windows)
        align = max(page_sizes)
        per_unit = tuple(align // size for size in page_sizes)
        full = tuple(g for g, window in enumerate(windows) if window is None)
        windowed = tuple(g for g, window in enumerate(windows) if window is not None)
        first = full[0] if full else 0
        if base is not None and base != first:
            msg = (
                f"the base group {base} was asked for, but the base is the first group of full "
                f"attention, or else group 0: pass {first}, or leave it out"
            )
            raise ConfigError(msg)
        self.__attrs_init__(
            page_sizes=tuple(page_sizes),
            windows=tuple(windows),
            base=first,
            align=align,
            pages_per_unit=per_unit,
            full_groups=full,
            window_groups=windowed,
            full_stride=sum(per_unit[g] for g in full),
            window_stride=sum(per_unit[g] for g in windowed),
            lane_columns=_columns(per_unit, windowed),
        )

    @property
    def num_groups(self) -> int:
        """How many cache groups there are."""
        return len(self.page_sizes)

    def by_group(self, full: Pages, window: Pages) -> tuple[Pages, ...]:
        """Take two lanes of shape [units, stride] apart into one flat array per group."""
        return tuple(
            (full if width is None else window)[:, columns].reshape(-1)
            for width, columns in zip(self.windows, self.lane_columns, strict=True)
        )

    def lane(self, groups: tuple[int, ...], pages: Sequence[Pages]) -> Pages:
        """Put the flat pages of `groups` side by side: an array [units, stride]."""
        if len(groups) == 1:
            return np.ascontiguousarray(pages[groups[0]], np.int32).reshape(
                -1, self.pages_per_unit[groups[0]]
            )
        units = len(pages[self.base]) // self.pages_per_unit[self.base]
        width = sum(self.pages_per_unit[g] for g in groups)
        lane = np.empty((units, width), np.int32)
        for g in groups:
            lane[:, self.lane_columns[g]] = pages[g].reshape(units, self.pages_per_unit[g])
        return lane


def _columns(per_unit: tuple[int, ...], windowed: tuple[int, ...]) -> tuple[slice, ...]:
    columns = []
    next_full = next_window = 0
    for g, width in enumerate(per_unit):
        if g in windowed:
            columns.append(slice(next_window, next_window + width))
            next_window += width
        else:
            columns.append(slice(next_full, next_full + width))
            next_full += width
    return tuple(columns)


def _require_sizes(page_sizes: Sequence[int], windows: Sequence[int | None]) -> None:
    if not page_sizes or len(page_sizes) != len(windows):
        msg = (
            f"{len(page_sizes)} page sizes and {len(windows)} windows were given: "
            "give one of each for every cache group"
        )
        raise ConfigError(msg)
    largest = max(page_sizes)
    for g, size in enumerate(page_sizes):
        if not 1 <= size <= MAX_PAGE_SIZE or largest % size:
            msg = (
                f"page size {size} of group {g} was asked for: a page holds 1 to "
                f"{MAX_PAGE_SIZE} tokens, and divides the largest page ({largest})"
            )
            raise ConfigError(msg)
    for g, window in enumerate(windows):
        if window is not None and window < 1:
            msg = f"a window of {window} tokens in group {g}: it includes the query, so give >= 1"
            raise ConfigError(msg)
