"""Tables: what stands on the device beside the pools, each as long as the space that indexes it.

A table is sized by what indexes it and by nothing else: one that maps request rows to state slots
is as long as there are rows, however few slots there are. They lie in what `mem_fraction` leaves
free, as graphs and activations do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

_ITEM_BYTES = {"int32": 4, "uint8": 1}


@attrs.frozen(kw_only=True)
class Table:
    """One table: `space` names what indexes it, `shape` starts with that space's size."""

    name: str
    space: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole table."""
        size = _ITEM_BYTES[self.dtype]
        for extent in self.shape:
            size *= extent
        return size


def device_tables(
    spaces: Mapping[str, int], widths: Mapping[str, int], *, has_state: bool
) -> Iterator[Table]:
    """The tables over `spaces` (their sizes by name: rows, and pages of each pool).

    `widths` has the pages in a row, by pool.
    """

    def over(name: str, space: str, *width: int, dtype: str = "int32") -> Table:
        return Table(name=name, space=space, shape=(spaces[space], *width), dtype=dtype)

    for length in ("protected_len", "committed_len", "allocated_len"):
        yield over(length, "rows")
    if has_state:
        yield over("state_slot", "rows")
    for pool, width in widths.items():
        yield over(f"page_table.{pool}", "rows", width)
        yield over(f"page_state.{pool}", f"pages.{pool}", dtype="uint8")
        yield over(f"page_refs.{pool}", f"pages.{pool}")
        yield over(f"page_pins.{pool}", f"pages.{pool}")
