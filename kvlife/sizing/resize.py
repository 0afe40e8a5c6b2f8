"""After graph capture: what is left then, the smaller plan, and the calls that reach it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from kvlife.config import compile_layout
from kvlife.errors import ConfigError
from kvlife.sizing.available import available_bytes, kept_bytes
from kvlife.sizing.basis import make_basis
from kvlife.sizing.configurator import KVCacheConfigurator
from kvlife.sizing.result import KVCacheConfigResult
from kvlife.sizing.solving import Demand

if TYPE_CHECKING:
    from kvlife.engine import KvEngine


@attrs.frozen
class ResizeCall:
    """`engine.resize(num_pages, space)`; `num_pages` counts the reserved page 0."""

    space: str
    num_pages: int


@attrs.frozen(kw_only=True)
class PostCaptureKVResize:
    """The plan after graph capture; `capped_max_running_requests` is None where it is as before."""

    max_total_num_tokens: int
    full_max_total_num_tokens: int | None
    swa_max_total_num_tokens: int | None
    capped_max_running_requests: int | None
    result: KVCacheConfigResult
    calls: tuple[ResizeCall, ...]

    def apply(self, engine: KvEngine) -> None:
        """Shrink the engine's pools; it refuses while pages that would go are in use."""
        for call in self.calls:
            engine.resize(call.num_pages, call.space)


def compute_post_capture_kv_resize(
    configurator: KVCacheConfigurator,
    result: KVCacheConfigResult,
    *,
    free_bytes: int,
    pre_model_load_memory: int,
    backed_bytes: int | None = None,
    least_kept_bytes: int = 0,
) -> PostCaptureKVResize:
    """The plan that fits what is free after graph capture, never larger than `result`.

    `free_bytes` is measured then; `backed_bytes` is what of the planned bytes is already taken
    (None: all). `least_kept_bytes` is kept free even where `mem_fraction` leaves less, as for
    activations of steps that no graph holds. State pools are made before capture and stay.
    Raises `BudgetTooSmall` where no plan fits any more.
    """
    backed = result.planned_bytes if backed_bytes is None else backed_bytes
    if not 0 <= backed <= result.planned_bytes:
        raise ConfigError(
            f"{backed:,} bytes are said to be taken of the {result.planned_bytes:,} planned: give"
            " what the pools have taken, at most all of it"
        )
    before = make_basis(configurator)
    basis = attrs.evolve(
        before,
        options=_options_after(configurator, result),
        demand=_demand_after(before.demand, result),
    )
    kept = kept_bytes(pre_model_load_memory, configurator.mem_fraction)
    available = available_bytes(
        free_bytes + backed,
        pre_model_load_memory,
        configurator.mem_fraction,
        {**configurator.reservations, "activations": max(0, least_kept_bytes - kept)},
    )
    smaller = configurator.plan(basis, available)
    capped = smaller.max_running_requests < result.max_running_requests
    return PostCaptureKVResize(
        max_total_num_tokens=smaller.max_total_num_tokens,
        full_max_total_num_tokens=smaller.full_max_total_num_tokens,
        swa_max_total_num_tokens=smaller.swa_max_total_num_tokens,
        capped_max_running_requests=smaller.max_running_requests if capped else None,
        result=smaller,
        calls=tuple(_calls(result, smaller)),
    )


def _options_after(
    configurator: KVCacheConfigurator, result: KVCacheConfigResult
) -> KVCacheConfigurator:
    """The options, with the requests that rows were made for as the most."""
    asked = result.max_running_requests * configurator.parallel.attention_dp
    return attrs.evolve(configurator, max_running_requests=asked)


def _demand_after(demand: Demand, result: KVCacheConfigResult) -> Demand:
    """The demand, with what was made before capture as it is, and no more tokens than then."""
    state, rows = demand.state, demand.rows
    if state is not None:
        state = attrs.evolve(state, wanted=result.state_pool_size)
    if rows is not None:
        rows = attrs.evolve(rows, num_rows=result.rows_pool_size)
    return attrs.evolve(
        demand,
        state=state,
        rows=rows,
        token_limits={"the plan before capture": result.max_total_num_tokens},
    )


def _calls(before: KVCacheConfigResult, after: KVCacheConfigResult) -> Iterator[ResizeCall]:
    old, new = compile_layout(before.pool_config), compile_layout(after.pool_config)
    for was, space in zip(old.spaces, new.spaces, strict=True):
        if space.num_pages < was.num_pages:
            yield ResizeCall(space.name, space.num_pages)
