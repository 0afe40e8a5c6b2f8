"""A look at an allocator's books at one moment, in the page ids of the observer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

import attrs

from kvlife.errors import ConfigError
from kvlife.testing.adapter import ShowsLens, ShowsPublished, ShowsRefs, ShowsTables

Key = Hashable


@attrs.frozen(kw_only=True, eq=False)
class Books:
    """`free` counts how often each page stands in the free list; `keys` are those of each page.

    `refs` is None where the allocator does not show it.
    """

    tables: dict[str, list[int]]
    lens: dict[str, int]
    free: Counter[int]
    keys: dict[int, set[Key]]
    refs: Counter[int] | None


class BookReader:
    """Reads the books of one allocator.

    Page 0 is never handed out in an observer's pools. An allocator that has a page 0 is read with
    all ids raised by one: `shift` says by how much.
    """

    def __init__(self, adapter: ShowsTables, num_pages: int) -> None:
        """Raise `ConfigError` where a new allocator's free list is not the whole pool."""
        self._adapter = adapter
        pages = list(adapter.free_pages())
        self.shift = int(0 in pages)
        wanted = range(1 - self.shift, num_pages - self.shift)
        if sorted(pages) != list(wanted):
            raise ConfigError(
                f"the free list of a new {type(adapter).__name__} has {len(pages)} pages"
                f" ({min(pages, default='none')} to {max(pages, default='none')}); it must have"
                f" the {len(wanted)} that it was given: num_pages counts one reserved page"
            )

    def read(self, rids: Iterable[str]) -> Books:
        """The books now, with the tables of these requests."""
        adapter, shift = self._adapter, self.shift
        rids = list(rids)
        keys: dict[int, set[Key]] = {}
        if isinstance(adapter, ShowsPublished):
            for key, page in adapter.published():
                keys.setdefault(page + shift, set()).add(key)
        refs = None
        if isinstance(adapter, ShowsRefs):
            refs = Counter({page + shift: num for page, num in adapter.refs().items()})
        return Books(
            tables={rid: [page + shift for page in adapter.table(rid)] for rid in rids},
            lens={rid: adapter.allocated_len(rid) for rid in rids}
            if isinstance(adapter, ShowsLens)
            else {},
            free=Counter(page + shift for page in adapter.free_pages()),
            keys=keys,
            refs=refs,
        )
