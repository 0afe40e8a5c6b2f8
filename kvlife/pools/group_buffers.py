"""The KV buffers of all cache groups: made from layouts, grown and shrunk with their spaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from kvlife.errors import ConfigError
from kvlife.pools.buffers import KvBuffers, free_bytes
from kvlife.pools.device_state import state_bytes
from kvlife.pools.layouts import KvLayout

if TYPE_CHECKING:
    from torch import Tensor

    from kvlife.config import GroupLayout, Layout
    from kvlife.kernels.planes import Planes
    from kvlife.kernels.violations import Violations

# What the user gives: one layout for all groups, one for each by name, or none and so no buffers.
Layouts = Mapping[str, KvLayout] | KvLayout | None


def layouts_by_group(wanted: object, layout: Layout) -> dict[int, KvLayout]:
    """The KV layout of each group, by its index, of what was given as `Layouts`.

    Raises `ConfigError` where it is something else, or cannot serve the groups.
    """
    names = [group.name for group in layout.groups]
    if wanted is None:
        return {}
    if isinstance(wanted, KvLayout):
        wanted = dict.fromkeys(names, wanted)
    if not isinstance(wanted, Mapping) or set(wanted) != set(names):
        given = list(wanted) if isinstance(wanted, Mapping) else wanted
        raise ConfigError(f"give one KV layout for each of the groups {names}, got {given}")
    chosen: dict[int, KvLayout] = {}
    for group in layout.groups:
        mine = wanted[group.name]
        if not isinstance(mine, KvLayout):
            raise ConfigError(f"the layout of {group.name!r} is no KvLayout: {mine!r}")
        for other in layout.groups[: group.idx]:
            if other.space_idx == group.space_idx and (
                _planes(chosen[other.idx], other, layout) != _planes(mine, group, layout)
            ):
                raise ConfigError(
                    f"groups {other.name!r} and {group.name!r} share the pages of one space, and"
                    " their pages would lie differently in its memory: give each a space of its"
                    " own, or layouts and page sizes that agree"
                )
        chosen[group.idx] = mine
    return chosen


def _planes(mine: KvLayout, group: GroupLayout, layout: Layout) -> Planes:
    return mine.planes(group.page_size, layout.spaces[group.space_idx].num_pages)


def refuse_beyond_device(
    layouts: Mapping[int, KvLayout],
    layout: Layout,
    device: torch.device,
    present: Layout | None = None,
) -> None:
    """Raise `ConfigError` where pools of this layout would not fit on the device.

    Where there are pools of the layout `present`, what changes is made beside them, then they go.
    """
    before = {} if present is None else _arena_bytes(layouts, present)
    after = _arena_bytes(layouts, layout)
    fresh = (size for space, size in after.items() if before.get(space) != size)
    wanted, free = state_bytes(layout) + sum(fresh), free_bytes(device)
    if device.type == "cpu":
        # Of a host all memory is counted, also what is in use.
        free -= sum(before.values())
    if wanted > free:
        raise ConfigError(
            f"the pools take {wanted} bytes on {device}, which has {free}: lower num_pages,"
            " max_requests or max_context_len, or take a smaller dtype"
        )


def _arena_bytes(layouts: Mapping[int, KvLayout], layout: Layout) -> dict[int, int]:
    """The bytes of each space's arena, by the index of the space."""
    return {
        group.space_idx: layouts[group.idx].num_bytes(
            group.page_size, layout.spaces[group.space_idx].num_pages
        )
        for group in layout.groups
        if group.idx in layouts
    }


def make_buffers(
    layouts: Mapping[int, KvLayout],
    layout: Layout,
    device: torch.device,
    violations: Violations,
) -> dict[int, KvBuffers]:
    """The buffers of each group, zeroed; groups that share a space share its memory."""
    arenas: dict[int, Tensor] = {}
    made: dict[int, KvBuffers] = {}
    for idx, mine in layouts.items():
        group = layout.groups[idx]
        made[idx] = KvBuffers(
            mine,
            group.page_size,
            layout.spaces[group.space_idx].num_pages,
            device,
            arena=arenas.get(group.space_idx),
            violations=violations,
            group=idx,
        )
        arenas[group.space_idx] = made[idx].arena
    return made


def resized(buffers: Mapping[int, KvBuffers], layout: Layout) -> dict[int, KvBuffers]:
    """Buffers for the layout's numbers of pages, with what the pages hold; same ones stay."""
    arenas: dict[int, Tensor] = {}
    made: dict[int, KvBuffers] = {}
    for idx, old in buffers.items():
        space = layout.spaces[layout.groups[idx].space_idx]
        if space.num_pages == old.num_pages:
            made[idx] = old
            continue
        new = KvBuffers(
            old.layout, old.page_size, space.num_pages, old.device,
            arena=arenas.get(space.idx), violations=old.violations, group=idx,
        )  # fmt: skip
        if space.idx not in arenas:
            _copy_pages_over(old, new)
        arenas[space.idx] = new.arena
        made[idx] = new
    return made


def _copy_pages_over(old: KvBuffers, new: KvBuffers) -> None:
    kept = min(old.num_pages, new.num_pages)
    for source, target in zip(_sections(old), _sections(new), strict=True):
        target[:, :kept] = source[:, :kept]


def _sections(buffers: KvBuffers) -> list[Tensor]:
    """Each plane as [layers, pages, bytes]."""
    planes: Planes = buffers.planes
    return [
        buffers.arena.as_strided(
            (plane.num_layers, planes.num_pages, plane.page_bytes),
            (plane.layer_stride, plane.page_stride, 1),
            plane.offset,
        )
        for plane in planes.planes
    ]
