"""Built pools: the device pools of a plan, whose bytes are the plan's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kvlife.errors import ConfigError
from kvlife.sizing.cells import Cell
from kvlife.sizing.result import KVCacheConfigResult, PoolPlan

if TYPE_CHECKING:
    from kvlife.pools import DevicePools, KvLayout

Order = Literal["layer", "page"]
MULTI_HEAD = ("full attention", "sliding window")
LATENT = "latent"


def build_pools(
    plan: KVCacheConfigResult,
    *,
    device: str = "cpu",
    order: Order = "layer",
    content: str | None = None,
    poison: int | None = None,
) -> DevicePools:
    """The pools of a plan, for an engine of `plan.pool_config`; the rest as in `DevicePools`.

    What they take on the device for KV is `plan.planned_bytes`. Raises `ConfigError` that names
    what no layout exists for.
    """
    _refuse_unbuilt(plan)
    # torch is loaded where pools are made, and not by a plan.
    from kvlife.pools import DevicePools

    layouts = None
    if plan.buffers:
        layouts = {part.name: _layout(plan, part, order) for part in plan.pools}
    return DevicePools(layouts, device=device, content=content, poison=poison)


def _refuse_unbuilt(plan: KVCacheConfigResult) -> None:
    missing = []
    if plan.state is not None:
        missing.append(f"the state slots of group {plan.state.name!r}")
    if plan.rows_pool_size is not None:
        missing.append("the states of compressors")
    if any(buffer.name == "unified" for buffer in plan.buffers):
        missing.append("one buffer for several groups (unified)")
    if plan.logical_max_total_num_tokens != plan.max_total_num_tokens:
        missing.append("a host space beside the device's (HiSparse)")
    foreign = {buffer.dtype for buffer in plan.buffers if buffer.dtype.endswith("fnuz")}
    missing += [f"{dtype}, HIP's own fp8" for dtype in sorted(foreign)]
    if missing:
        raise ConfigError(f"no layout exists yet for {', nor for '.join(missing)}")


def _layout(plan: KVCacheConfigResult, part: PoolPlan, order: Order) -> KvLayout:
    # As above: torch is loaded here at the earliest.
    from kvlife.pools import Latent, MultiHead

    cell = _only_cell(part)
    sizes = {name.name: name for name in cell.parts}
    packed = 2 if plan.dtype == "nvfp4" else 1
    dtype, layers = plan.dtype, cell.num_layers
    if cell.kind == LATENT and "rope" in sizes:
        return Latent(
            num_layers=layers,
            dtype=dtype,
            order=order,
            latent_dim=sizes["latent"].shape[-1] * packed,
            rope_dim=sizes["rope"].shape[-1] * packed,
        )
    if cell.kind in MULTI_HEAD and len(sizes["k"].shape) == 2:
        return MultiHead(
            num_layers=layers,
            dtype=dtype,
            order=order,
            num_kv_heads=sizes["k"].shape[0],
            k_dim=sizes["k"].shape[1] * packed,
            v_dim=sizes["v"].shape[1] * packed,
        )
    raise ConfigError(f"no layout exists yet for {cell.kind!r} of group {part.name!r}")


def _only_cell(part: PoolPlan) -> Cell:
    """The one kind of layers of a pool; raises `ConfigError` where it has several, or none."""
    cells = [(group, cell) for group in part.pool.groups for cell in group.cells]
    if len(cells) != 1:
        kinds = ", ".join(repr(cell.kind) for _, cell in cells) or "no layer of this rank"
        raise ConfigError(f"no layout exists yet for {kinds} in one pool, that of {part.name!r}")
    ((group, cell),) = cells
    if group.tokens_per_entry > 1:
        raise ConfigError(
            f"no layout exists yet for one entry of {group.name!r} for every"
            f" {group.tokens_per_entry} tokens"
        )
    return cell
