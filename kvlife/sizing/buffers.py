"""Buffers: what is made on the device for a plan, with shapes, dtypes by name, and bytes.

A *paged pool* is what one page table of the engine pages: the full-attention group with all that
lives as long as it does (compressed entries, index keys), or one window group. Its page of
`page_size` tokens holds an entry for every token, or for every `tokens_per_entry`.

Tensors lie in planes, one behind the other, each from a multiple of 256 bytes on: values first, and
behind them their scales. The two parts of a latent share a plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import attrs

from kvlife.config import MAX_LEN, MAX_PAGES
from kvlife.errors import ConfigError
from kvlife.sizing.cells import Cell, CellPart, GroupBytes

# Each plane of a pool starts at a multiple of this, so that it can be read in the widest words.
PLANE_ALIGN = 256
VALUES, SCALES = "values", "scales"


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
    """The bytes up to where the next plane starts."""
    return -(-num_bytes // PLANE_ALIGN) * PLANE_ALIGN


@attrs.frozen(kw_only=True)
class _Section:
    """One tensor of a pool, before it is known how many pages it has."""

    name: str
    plane: tuple[str, ...]
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
        planes = [num_pages * sum(part.page_bytes for part in plane) for plane in self._planes()]
        return sum(map(aligned, planes[:-1])) + sum(planes[-1:])

    def buffers(self, num_pages: int) -> list[Buffer]:
        """The tensors of so many pages, one behind the other."""
        planes = self._planes()
        found = []
        for plane in planes:
            made = [section.buffer(self.name, num_pages) for section in plane]
            size = sum(buffer.num_bytes for buffer in made)
            if plane is not planes[-1]:
                padded = made[-1].num_bytes + aligned(size) - size
                made[-1] = attrs.evolve(made[-1], num_bytes=padded)
            found += made
        return found

    def _planes(self) -> list[list[_Section]]:
        planes: dict[tuple[str, ...], list[_Section]] = {}
        for section in self._sections():
            planes.setdefault(section.plane, []).append(section)
        return sorted(planes.values(), key=lambda plane: plane[0].plane[-1] == SCALES)

    def _sections(self) -> list[_Section]:
        return [
            _Section(
                name=f"{group.name}.{cell.kind}.{part.name}",
                plane=(group.name, cell.kind, *_plane_of(part.name)),
                num_layers=cell.num_layers,
                entries=self.page_size // group.tokens_per_entry,
                part=part,
            )
            for group in self.groups
            for cell in group.cells
            for part in cell.parts
        ]


def _plane_of(part: str) -> tuple[str, str]:
    """The plane of a part, and what it holds; the rotary part of a latent lies beside it."""
    values = part.removesuffix("_scale")
    return "latent" if values == "rope" else values, VALUES if values == part else SCALES


def paged_pools(groups: Sequence[GroupBytes], page_size: int) -> tuple[PagedPool, ...]:
    """The paged pools of a rank's groups: what lives as long as full attention first."""
    groups = [_with_like_layers_together(group) for group in groups]
    lasting = tuple(group for group in groups if group.kind in ("full", "compressed"))
    windows = [group for group in groups if group.kind == "window"]
    pools = [PagedPool(name="full", window=None, page_size=page_size, groups=lasting)]
    pools += [
        PagedPool(name=group.name, window=group.window, page_size=page_size, groups=(group,))
        for group in windows
    ]
    return tuple(pools if lasting else pools[1:])


def _with_like_layers_together(group: GroupBytes) -> GroupBytes:
    """The group with layers of the same parts in one cell: a draft's may be like the model's."""
    found: dict[tuple[CellPart, ...], Cell] = {}
    for cell in group.cells:
        like = found.get(cell.parts)
        more = 0 if like is None else like.num_layers
        found[cell.parts] = attrs.evolve(like or cell, num_layers=cell.num_layers + more)
    return attrs.evolve(group, cells=tuple(found.values()))


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
