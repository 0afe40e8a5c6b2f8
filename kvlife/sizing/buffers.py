"""Buffers: what is made on the device for a plan, with shapes, dtypes by name, and bytes.

A *paged pool* is what one page table of the engine pages: the full-attention group with all that
lives as long as it does (compressed entries, index keys), or one window group. Its page of
`page_size` tokens holds an entry for every token, or for every `tokens_per_entry`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import attrs

from kvlife.config import MAX_LEN, MAX_PAGES
from kvlife.errors import ConfigError
from kvlife.sizing.cells import CellPart, GroupBytes

# Each section of a pool starts at a multiple of this, so that it can be read in the widest words.
SECTION_ALIGN = 256


@attrs.frozen(kw_only=True)
class Buffer:
    """One tensor: of which pool, its shape, torch's name of its dtype, and its bytes.

    `num_bytes` has what is left free behind it, so that the next one in its pool is aligned.
    """

    name: str
    pool: str
    shape: tuple[int, ...]
    dtype: str
    num_bytes: int


def aligned(num_bytes: int) -> int:
    """The bytes up to where the next section starts."""
    return -(-num_bytes // SECTION_ALIGN) * SECTION_ALIGN


@attrs.frozen(kw_only=True)
class _Section:
    """One tensor of a pool, before it is known how many pages it has."""

    name: str
    num_layers: int
    entries: int
    part: CellPart

    @property
    def page_bytes(self) -> int:
        return self.num_layers * self.entries * self.part.num_bytes

    def buffer(self, pool: str, num_pages: int) -> Buffer:
        return Buffer(
            name=self.name,
            pool=pool,
            shape=(self.num_layers, num_pages, self.entries, *self.part.shape),
            dtype=self.part.dtype,
            num_bytes=num_pages * self.page_bytes,
        )


@attrs.frozen(kw_only=True)
class PagedPool:
    """The groups that one page table pages; `name` and `window` are the cache group's."""

    name: str
    window: int | None
    page_size: int
    groups: tuple[GroupBytes, ...]

    def __attrs_post_init__(self) -> None:
        for group in self.groups:
            if self.page_size % group.tokens_per_entry:
                raise ConfigError(
                    f"pages of {self.page_size} tokens asked for, and group {group.name!r} keeps"
                    f" one entry for every {group.tokens_per_entry} tokens: take a multiple of"
                    f" {group.tokens_per_entry}"
                )

    @property
    def bytes_per_token(self) -> Fraction:
        """Bytes a token, over all layers of this rank."""
        return sum((Fraction(group.bytes_per_token) for group in self.groups), Fraction(0))

    @property
    def page_bytes(self) -> int:
        """Bytes of one page, over all layers of this rank."""
        return sum(
            self.page_size // group.tokens_per_entry * group.entry_bytes for group in self.groups
        )

    @property
    def most_pages(self) -> int:
        """The most pages that an engine can count."""
        return min(MAX_PAGES, MAX_LEN // self.page_size)

    def num_bytes(self, num_pages: int) -> int:
        """Bytes of the buffers of so many pages, the reserved page 0 among them."""
        *others, last = [num_pages * section.page_bytes for section in self._sections()] or [0]
        return sum(map(aligned, others)) + last

    def buffers(self, num_pages: int) -> list[Buffer]:
        """The tensors of so many pages, one behind the other."""
        found = [section.buffer(self.name, num_pages) for section in self._sections()]
        padded = [
            attrs.evolve(buffer, num_bytes=aligned(buffer.num_bytes)) for buffer in found[:-1]
        ]
        return padded + found[-1:]

    def _sections(self) -> list[_Section]:
        return [
            _Section(
                name=f"{group.name}.{cell.kind}.{part.name}",
                num_layers=cell.num_layers,
                entries=self.page_size // group.tokens_per_entry,
                part=part,
            )
            for group in self.groups
            for cell in group.cells
            for part in cell.parts
        ]


def paged_pools(groups: Sequence[GroupBytes], page_size: int) -> tuple[PagedPool, ...]:
    """The paged pools of a rank's groups: what lives as long as full attention first."""
    lasting = tuple(group for group in groups if group.kind in ("full", "compressed"))
    windows = [group for group in groups if group.kind == "window"]
    pools = [PagedPool(name="full", window=None, page_size=page_size, groups=lasting)]
    pools += [
        PagedPool(name=group.name, window=group.window, page_size=page_size, groups=(group,))
        for group in windows
    ]
    return tuple(pools if lasting else pools[1:])


def state_buffers(
    group: GroupBytes, num_slots: int, draft_rows: int, num_drafts: int
) -> list[Buffer]:
    """The tensors of a state pool: its slots with the padding slot, and the drafts' states."""
    found = []
    for label, lead in (("state", (num_slots + 1,)), ("draft", (draft_rows, num_drafts))):
        if not all(lead):
            continue
        times = lead[0] * (lead[1] if len(lead) > 1 else 1)
        found += [
            Buffer(
                name=f"{group.name}.{label}.{part.name}",
                pool=group.name,
                shape=(cell.num_layers, *lead, *part.shape),
                dtype=part.dtype,
                num_bytes=cell.num_layers * times * part.num_bytes,
            )
            for cell in group.cells
            for part in cell.parts
        ]
    return found
