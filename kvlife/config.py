"""What a pool is made of: cache groups, page spaces, sizes; and the layout compiled from it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping

import attrs

from kvlife.errors import ConfigError

MAX_PAGES = 1 << 26
MAX_LEN = (1 << 31) - 2
MAX_REQUESTS = 1 << 20


@attrs.frozen(kw_only=False)
class CacheGroup:
    """A set of layers with one lifetime rule.

    `window` is the sliding window in tokens, the query included; None means full attention.
    `page_size` (tokens) and `num_pages` default to the pool's. Groups that name the same `space`
    share its pages, and then each page belongs to one group at a time.
    """

    name: str
    window: int | None = None
    page_size: int | None = None
    num_pages: int | None = None
    space: str | None = None


@attrs.frozen(kw_only=True)
class GroupLayout:
    """One group with everything resolved; `window_idx` counts the window groups, or is None."""

    idx: int
    name: str
    window: int | None
    window_idx: int | None
    page_size: int
    space_idx: int
    table_width: int


@attrs.frozen(kw_only=True)
class SpaceLayout:
    """One page space: `num_pages` counts the reserved page 0."""

    idx: int
    name: str
    num_pages: int


@attrs.frozen(kw_only=True)
class Layout:
    """The compiled configuration that ledger, checker, codec and engine read.

    `align` is the largest page size: lengths that must be aligned are aligned to it. `base` is the
    first full-attention group, or group 0 where there is none. Rows are 1 to `num_rows - 1`.
    `host_pages` counts the host's pages, its reserved page 0 included; 0 where it has none.
    """

    groups: tuple[GroupLayout, ...]
    spaces: tuple[SpaceLayout, ...]
    align: int
    base: int
    num_rows: int
    capacity: int
    scheduled: bool
    duplicates: bool
    fifo: bool
    host_pages: int

    @property
    def window_groups(self) -> tuple[GroupLayout, ...]:
        """The groups with a sliding window, in order."""
        return tuple(group for group in self.groups if group.window is not None)


def _as_tuple(groups: Iterable[CacheGroup]) -> tuple[CacheGroup, ...]:
    return tuple(groups)


@attrs.frozen(kw_only=True)
class PoolConfig:
    """The pools of one engine.

    `num_pages` counts the reserved page 0 of each space. `max_requests` rows are for requests and
    sessions together. `max_context_len` is the row capacity in tokens. `free_order` "fifo" hands
    out the page that was freed first, so that stale reads show late. `publish` "scheduled" and
    `duplicates` describe captures of engines that hash pages when they schedule them.
    `host_pages` is the host's page space, which keeps the KV of retracted requests: 0 for none,
    else its pages with the reserved page 0; each holds a page of any group, so it is as large as
    the largest group's.
    """

    page_size: int
    num_pages: int
    max_requests: int
    max_context_len: int
    groups: tuple[CacheGroup, ...] = attrs.field(default=(CacheGroup("full"),), converter=_as_tuple)
    free_order: str = "lifo"
    publish: str = "committed"
    duplicates: bool = False
    host_pages: int = 0

    def __attrs_post_init__(self) -> None:
        compile_layout(self)


def _whole(name: str, value: object, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{name} must be a whole number in [{low}, {high}], got {value!r}")
    return value


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, got {value!r}")
    return value


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ConfigError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    return value


def _spaces(config: PoolConfig) -> dict[str, int]:
    spaces: dict[str, int] = {}
    for group in config.groups:
        name = group.space or group.name
        asked = config.num_pages if group.num_pages is None else group.num_pages
        size = _whole(f"num_pages of {name!r}", asked, 2, MAX_PAGES)
        if group.num_pages is not None and spaces.get(name, size) != size:
            raise ConfigError(f"space {name!r} has {spaces[name]} and {size} pages: name one size")
        spaces.setdefault(name, size)
    return spaces


def _host_pages(asked: int) -> int:
    num = _whole("host_pages", asked, 0, MAX_PAGES)
    if num == 1:
        raise ConfigError("host_pages is 1, and page 0 is reserved: give 0 for none, or at least 2")
    return num


def compile_layout(config: PoolConfig) -> Layout:
    """Check a configuration and resolve it; raises `ConfigError` naming the field."""
    _whole("max_requests", config.max_requests, 1, MAX_REQUESTS)
    capacity = _whole("max_context_len", config.max_context_len, 1, MAX_LEN)
    if not config.groups:
        raise ConfigError("groups is empty: name at least one cache group")
    names = [group.name for group in config.groups]
    given: list[object] = [group.space for group in config.groups if group.space is not None]
    for name in (*names, *given):
        if not isinstance(name, str) or not name.isprintable():
            raise ConfigError(f"groups and spaces have printable names, got {name!r}")
    if len(set(names)) != len(names) or not all(names) or len(names) > 64:
        raise ConfigError(f"groups need up to 64 different names, got {names}")
    spaces = _spaces(config)
    space_idx = {name: idx for idx, name in enumerate(spaces)}
    groups: list[GroupLayout] = []
    for idx, group in enumerate(config.groups):
        size = config.page_size if group.page_size is None else group.page_size
        _whole(f"page_size of {group.name!r}", size, 1, 256)
        space = group.space or group.name
        _whole(f"slots of {space!r} (pages times page_size)", spaces[space] * size, 2, MAX_LEN)
        if group.window is not None:
            _whole(f"window of {group.name!r}", group.window, 1, MAX_LEN)
        groups.append(
            GroupLayout(
                idx=idx,
                name=group.name,
                window=group.window,
                window_idx=None
                if group.window is None
                else sum(g.window is not None for g in groups),
                page_size=size,
                space_idx=space_idx[space],
                table_width=-(-capacity // size),
            )
        )
    align = max(group.page_size for group in groups)
    for resolved in groups:
        if align % resolved.page_size:
            raise ConfigError(
                f"page_size {resolved.page_size} of {resolved.name!r} does not divide {align}"
            )
    full = [group.idx for group in groups if group.window is None]
    return Layout(
        groups=tuple(groups),
        spaces=tuple(
            SpaceLayout(idx=idx, name=name, num_pages=size)
            for idx, (name, size) in enumerate(spaces.items())
        ),
        align=align,
        base=full[0] if full else 0,
        num_rows=config.max_requests + 1,
        capacity=capacity,
        scheduled=_one_of("publish", config.publish, ("committed", "scheduled")) == "scheduled",
        duplicates=_flag("duplicates", config.duplicates),
        fifo=_one_of("free_order", config.free_order, ("lifo", "fifo")) == "fifo",
        host_pages=_host_pages(config.host_pages),
    )


def with_pages(layout: Layout, num_pages: Mapping[int, int]) -> Layout:
    """The layout with other numbers of pages, by the index of their space."""
    spaces = (
        attrs.evolve(space, num_pages=num_pages.get(space.idx, space.num_pages))
        for space in layout.spaces
    )
    return attrs.evolve(layout, spaces=tuple(spaces))


def ledger_bytes(layout: Layout) -> int:
    """The bytes that the ledger's columns and tables of this layout take when all are touched."""
    tables = sum(layout.num_rows * group.table_width * 4 for group in layout.groups)
    pages = (sum(space.num_pages for space in layout.spaces) + layout.host_pages) * 32
    return tables + pages + layout.num_rows * 64


def refuse_beyond_memory(layout: Layout) -> None:
    """Raise `ConfigError` where the ledger alone would not fit into the machine's memory."""
    wanted = ledger_bytes(layout)
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if wanted > present:
        raise ConfigError(
            f"the ledger of this pool takes {_gib(wanted)}, the machine has {_gib(present)}:"
            " lower num_pages, max_requests or max_context_len"
        )


def _gib(num_bytes: int) -> str:
    return f"{math.ceil(num_bytes / (1 << 30) * 10) / 10} GiB"
