"""Tables: what stands on the device beside the pools, each as long as the space that indexes it.

A table is sized by what indexes it and by nothing else: one that maps request rows to state slots
is as long as there are rows, however few slots there are. They lie in what `mem_fraction` leaves
free, as graphs and activations do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs

from kvlife.config import Layout

# All tables hold int32: page ids, counts, states, lengths, slots.
ITEM_BYTES = 4
DTYPE = "int32"


@attrs.frozen(kw_only=True)
class Table:
    """One table: `space` names what indexes it, `shape` starts with that space's size."""

    name: str
    space: str
    shape: tuple[int, ...]
    dtype: str = DTYPE

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole table."""
        return math.prod(self.shape) * ITEM_BYTES


def index_spaces(layout: Layout) -> dict[str, int]:
    """The spaces that index tables, by name: the rows, and the pages of each page space."""
    pages = {f"pages of {space.name}": space.num_pages for space in layout.spaces}
    return {"rows": layout.num_rows, **pages}


def device_tables(layout: Layout, *, has_state: bool) -> Iterator[Table]:
    """The tables of an engine's layout; `has_state` asks for the state slot of each row."""
    spaces = index_spaces(layout)

    def over(name: str, space: str, *width: int) -> Table:
        return Table(name=name, space=space, shape=(spaces[space], *width))

    for length in ("allocated_len", "committed_len", "protected_len", "evict_floor"):
        yield over(length, "rows")
    if has_state:
        yield over("state_slot", "rows")
    for group in layout.groups:
        yield over(f"page_table.{group.name}", "rows", group.table_width)
        if group.window is not None:
            yield over(f"evicted_len.{group.name}", "rows")
    for space in layout.spaces:
        for column in ("page_state", "page_refs", "page_pins"):
            yield over(f"{column}.{space.name}", f"pages of {space.name}")
