"""The basis of a plan: what follows from the model and the options before memory is known."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import attrs

from kvlife.errors import ConfigError
from kvlife.sizing.buffers import PagedPool, paged_pools
from kvlife.sizing.cells import GroupBytes, group_bytes
from kvlife.sizing.figures import Figure
from kvlife.sizing.layers import FullAttention
from kvlife.sizing.request_caps import MOST, asked_on_this_rank
from kvlife.sizing.rows import Step, decode_reserve_len, row_capacity, worst_step_len
from kvlife.sizing.solving import USER_LIMIT, Demand, RowDemand, StateDemand
from kvlife.sizing.states import StateCost, slots_per_request
from kvlife.sizing.windows import ByRatio, held_window_len, needed_window_len

if TYPE_CHECKING:
    from kvlife.sizing.configurator import KVCacheConfigurator


@attrs.frozen(kw_only=True)
class Basis:
    """What a plan is solved from, and the figures of it."""

    options: KVCacheConfigurator
    context_len: int
    groups: tuple[GroupBytes, ...]
    pools: tuple[PagedPool, ...]
    state_group: GroupBytes | None
    row_group: GroupBytes | None
    asked: int | None
    demand: Demand
    figures: tuple[Figure, ...]


def make_basis(options: KVCacheConfigurator) -> Basis:
    """The basis of these options; raises `ConfigError` for what no memory could serve."""
    context_len = options.context_len or options.geometry.context_len
    # Refuses a window that is larger than the context which is asked for.
    geometry = attrs.evolve(options.geometry, context_len=context_len)
    asked = None
    if options.max_running_requests is not None:
        dp = options.parallel.attention_dp
        asked = asked_on_this_rank(options.max_running_requests, dp)
    groups = group_bytes(
        geometry,
        options.dtype,
        options.parallel,
        options.draft,
        host_to_device_ratio=options.host_to_device_ratio,
    )
    pools = paged_pools(groups, options.page_size)
    states = [group for group in groups if group.kind == "state" and group.is_published]
    rows = [group for group in groups if group.kind == "state" and not group.is_published]
    if options.prefill_only:
        _refuse_without_pool(options)
    if options.unified:
        _refuse_alone(len(pools) + len(states))
    step = _step(options)
    worst = worst_step_len(step, options.page_size)
    reserve = decode_reserve_len(step, options.page_size)
    capacity = row_capacity(context_len, _int(reserve))
    windows, window_len = _window_demands(options, pools, asked, _int(reserve))
    state, state_figures = _state_demand(options, states, asked)
    sizing = options.window_sizing
    limits = {} if options.max_total_tokens is None else {USER_LIMIT: options.max_total_tokens}
    demand = Demand(
        pools=pools or _empty_pools(options),
        ratio=sizing.ratio if isinstance(sizing, ByRatio) else Fraction(0),
        window_len=window_len,
        state=state,
        rows=_row_demand(rows, context_len, asked),
        token_limits=limits,
        row_capacity=_int(capacity),
        logical=options.host_to_device_ratio,
    )
    return Basis(
        options=options,
        context_len=context_len,
        groups=groups,
        pools=demand.pools,
        state_group=states[0] if states else None,
        row_group=rows[0] if rows else None,
        asked=asked,
        demand=demand,
        figures=(
            *(group.derivation for group in groups),
            worst,
            reserve,
            capacity,
            *windows,
            *state_figures,
        ),
    )


def _int(figure: Figure) -> int:
    assert isinstance(figure.value, int)
    return figure.value


def _step(options: KVCacheConfigurator) -> Step:
    draft = options.draft
    if draft is None:
        return Step(overlap=options.overlap)
    return Step(
        num_draft_tokens=draft.num_draft_tokens,
        depth=options.draft_steps,
        topk=draft.topk,
        is_speculative=True,
        overlap=options.overlap,
    )


def _empty_pools(options: KVCacheConfigurator) -> tuple[PagedPool, ...]:
    """A model of states alone still has rows of tokens, whose pages take no bytes."""
    return (PagedPool(name="full", window=None, page_size=options.page_size, groups=()),)


def _refuse_alone(num_groups: int) -> None:
    if num_groups < 2:
        raise ConfigError(
            "unified is one byte buffer for several groups, and this model has one: leave it out"
        )


def _refuse_without_pool(options: KVCacheConfigurator) -> None:
    kinds = {type(cache).__name__ for layer in options.geometry.layers for cache in layer}
    odd = sorted(kinds - {FullAttention.__name__})
    if odd:
        raise ConfigError(
            f"a server without a KV pool is for plain attention only, and this model has"
            f" {', '.join(odd)}: plan it with a pool"
        )
    if options.draft is not None:
        raise ConfigError("a draft reads the KV of its target: a server with one has a KV pool")


def _window_demands(
    options: KVCacheConfigurator,
    pools: tuple[PagedPool, ...],
    asked: int | None,
    reserve_len: int,
) -> tuple[list[Figure], dict[str, int]]:
    """The figures and tokens of window pools that requests size; none where a ratio does."""
    sizing = options.window_sizing
    if isinstance(sizing, ByRatio):
        return [], {}
    if asked is None:
        raise ConfigError(
            "window pools sized from the most requests take max_running_requests: set it, or"
            " split by ratio"
        )
    figures: list[Figure] = []
    found: dict[str, int] = {}
    draft_tokens = 1 if options.draft is None else options.draft.num_draft_tokens
    for pool in pools[1:]:
        assert pool.window is not None
        held = held_window_len(
            pool.name,
            pool.window,
            options.page_size,
            sizing,
            draft_tokens=draft_tokens,
            ahead_len=max(0, reserve_len - draft_tokens),
        )
        needed = needed_window_len(
            pool.name,
            held,
            options.page_size,
            sizing,
            num_requests=asked,
            overlap=options.overlap,
        )
        found[pool.name] = _int(needed)
        figures += [held, needed]
    return figures, found


def _row_demand(rows: list[GroupBytes], context_len: int, asked: int | None) -> RowDemand | None:
    if not rows:
        return None
    return RowDemand(
        row_bytes=sum(group.bytes_per_slot for group in rows),
        context_len=context_len,
        num_rows=asked,
    )


def _state_demand(
    options: KVCacheConfigurator, states: list[GroupBytes], asked: int | None
) -> tuple[StateDemand | None, list[Figure]]:
    if not states:
        return None, []
    sizing = options.state_sizing
    per_request = slots_per_request(
        sizing, prefix_cache=options.prefix_cache, overlap=options.overlap
    )
    cost = StateCost(
        slot_bytes=sum(group.bytes_per_slot for group in states),
        num_drafts=0 if options.draft is None else options.draft.num_draft_tokens,
        per_request=_int(per_request),
        num_requests=MOST if asked is None else asked,
    )
    wanted = sizing.num_slots
    if wanted is not None:
        wanted //= options.parallel.attention_dp
    useful = None if asked is None or options.prefix_cache else asked * _int(per_request)
    demand = StateDemand(cost=cost, ratio=sizing.ratio, wanted=wanted, useful=useful)
    return demand, [per_request]
