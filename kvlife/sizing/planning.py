"""From solved sizes to a result: the pools, the engine's configuration, the buffers, the notes."""

from __future__ import annotations

from kvlife.config import CacheGroup, PoolConfig, compile_layout
from kvlife.errors import ConfigError
from kvlife.sizing.basis import Basis
from kvlife.sizing.buffers import Buffer, state_buffers
from kvlife.sizing.figures import Figure, Figures
from kvlife.sizing.plan_figures import plan_figures
from kvlife.sizing.request_caps import most_requests
from kvlife.sizing.result import CompressedPlan, KVCacheConfigResult, PoolPlan, StatePlan
from kvlife.sizing.solving import BUDGET, Sizes
from kvlife.sizing.tables import device_tables, index_spaces
from kvlife.sizing.units import size_text

UNIFIED_ALIGN = 4096
UNIFIED = "unified"


def build_result(basis: Basis, sizes: Sizes, available: Figure) -> KVCacheConfigResult:
    """The plan of these sizes."""
    assert isinstance(available.value, int)
    options = basis.options
    state = _state_plan(basis, sizes)
    rows = basis.demand.rows
    pools = _pool_plans(basis, sizes)
    requests = most_requests(
        sizes.num_tokens,
        basis.context_len,
        options.max_running_requests,
        options.parallel.attention_dp,
        None if state is None else (state.num_slots, state.slots_per_request),
    )
    assert isinstance(requests.value, int)
    buffers = _buffers(basis, sizes, available.value)
    planned = sum(buffer.num_bytes for buffer in buffers)
    unified_bytes = planned if options.unified else None
    config = _pool_config(basis, pools, requests.value, unified_bytes)
    layout = compile_layout(config)
    tables = tuple(device_tables(layout, has_state=state is not None))
    figures = plan_figures(basis, sizes, available, requests, pools, planned)
    windows = [plan.num_tokens for plan in pools if plan.pool.window is not None]
    full = 0 if basis.pools[0].window is not None else sizes.num_tokens
    return KVCacheConfigResult(
        max_total_num_tokens=sizes.num_tokens,
        max_running_requests=requests.value,
        full_max_total_num_tokens=full if windows else None,
        swa_max_total_num_tokens=min(windows) if windows else None,
        logical_max_total_num_tokens=sizes.num_tokens * options.host_to_device_ratio,
        compressed=_compressed(basis, sizes),
        state=state,
        rows_pool_size=None if rows is None else rows.count(sizes.num_tokens) - 1,
        pools=pools,
        page_size=options.page_size,
        context_len=basis.context_len,
        row_capacity=basis.demand.row_capacity,
        dtype=options.dtype.name,
        pool_config=config,
        buffers=buffers,
        tables=tables,
        index_spaces=tuple(index_spaces(layout).items()),
        available_bytes=available.value,
        planned_bytes=planned,
        figures=Figures(figures),
        notes=tuple(_notes(basis, sizes, requests, tables_bytes=sum(t.num_bytes for t in tables))),
    )


def _pool_plans(basis: Basis, sizes: Sizes) -> tuple[PoolPlan, ...]:
    main = basis.pools[0].name
    found = []
    for pool in basis.pools:
        usable = sizes.pages[pool.name]
        why = sizes.why["max_total_num_tokens"]
        if pool.name != main:
            fixed = pool.name in basis.demand.window_len
            why = "what the most requests hold" if fixed else f"its ratio to {main!r}"
        found.append(
            PoolPlan(
                pool=pool,
                num_pages=usable + 1,
                num_tokens=usable * pool.page_size,
                num_bytes=pool.num_bytes(usable + 1),
                why=why,
            )
        )
    return tuple(found)


def _state_plan(basis: Basis, sizes: Sizes) -> StatePlan | None:
    demand = basis.demand.state
    if demand is None or basis.state_group is None or sizes.num_slots is None:
        return None
    return StatePlan(
        name=basis.state_group.name,
        num_slots=sizes.num_slots,
        slot_bytes=demand.cost.slot_bytes,
        slots_per_request=demand.cost.per_request,
        draft_rows=demand.cost.draft_rows(sizes.num_slots),
        num_drafts=demand.cost.num_drafts,
        num_bytes=sizes.state_bytes,
        why=sizes.why["state_pool_size"],
    )


def _compressed(basis: Basis, sizes: Sizes) -> tuple[CompressedPlan, ...]:
    return tuple(
        CompressedPlan(
            name=group.name,
            ratio=group.tokens_per_entry,
            num_entries=sizes.num_tokens // group.tokens_per_entry,
        )
        for group in basis.groups
        if group.kind == "compressed"
    )


def _buffers(basis: Basis, sizes: Sizes, available: int) -> tuple[Buffer, ...]:
    if basis.options.prefill_only:
        return ()
    if basis.options.unified:
        return (_unified_buffer(sizes, available),)
    found: list[Buffer] = []
    for pool in basis.pools:
        found += pool.buffers(sizes.pages[pool.name] + 1)
    demand = basis.demand.state
    if demand is not None and basis.state_group is not None and sizes.num_slots is not None:
        rows = demand.cost.draft_rows(sizes.num_slots)
        found += state_buffers(basis.state_group, sizes.num_slots, rows, demand.cost.num_drafts)
    if basis.demand.rows is not None and basis.row_group is not None:
        count = basis.demand.rows.count(sizes.num_tokens)
        found += state_buffers(basis.row_group, count - 1, 0, 0)
    return tuple(found)


def _unified_buffer(sizes: Sizes, available: int) -> Buffer:
    """In whole units: all of the budget where it is what binds, else what the groups take."""
    units = -(-(sizes.state_bytes + sizes.paged_bytes) // UNIFIED_ALIGN)
    if sizes.why["max_total_num_tokens"] == BUDGET:
        units = available // UNIFIED_ALIGN
    num_bytes = units * UNIFIED_ALIGN
    return Buffer(
        name=UNIFIED, pool=UNIFIED, shape=(num_bytes,), dtype="uint8", num_bytes=num_bytes
    )


def _pool_config(
    basis: Basis, pools: tuple[PoolPlan, ...], num_requests: int, unified_bytes: int | None
) -> PoolConfig:
    """The engine's configuration; pages of several groups lie in one space where they are alike."""
    if num_requests < 1:
        raise ConfigError("this plan runs no request at all: raise the token limit")
    host = basis.options.host_to_device_ratio
    page_bytes = {plan.pool.page_bytes for plan in pools}
    shares = unified_bytes is not None and len(pools) > 1 and len(page_bytes) == 1
    num_pages = (pools[0].num_pages - 1) * host + 1
    space = None
    if shares and unified_bytes is not None:
        space = UNIFIED
        num_pages = min(unified_bytes // page_bytes.pop(), pools[0].pool.most_pages)
    groups = [
        CacheGroup(
            plan.name,
            window=plan.pool.window,
            num_pages=num_pages if shares else (plan.num_pages - 1) * host + 1,
            space=space,
        )
        for plan in pools
    ]
    return PoolConfig(
        page_size=basis.options.page_size,
        num_pages=num_pages,
        max_requests=num_requests,
        max_context_len=basis.demand.row_capacity,
        groups=groups,
    )


def _notes(basis: Basis, sizes: Sizes, requests: Figure, tables_bytes: int) -> list[str]:
    options = basis.options
    found = []
    if options.dtype.why:
        found.append(f"dtype: {options.dtype.why}")
    if sizes.num_tokens < basis.context_len:
        found.append(
            f"a request of the whole context ({basis.context_len:,} tokens) does not fit into"
            f" {sizes.num_tokens:,}: it would be refused"
        )
    if basis.asked is not None and requests.value != basis.asked:
        found.append(
            f"{basis.asked:,} requests asked for on this rank, {requests.value:,} planned, as"
            f" {requests.bound} is no more"
        )
    limit = options.max_total_tokens
    if limit is not None and limit > sizes.num_tokens:
        found.append(f"the token limit of {limit:,} is above what is planned")
    if options.unified and len({pool.page_bytes for pool in basis.pools}) > 1:
        found.append(
            "the pools share one buffer, and each keeps its pages: an engine moves pages between"
            " groups only where they have the same bytes"
        )
    if options.prefill_only:
        found.append("no KV pool: prefill only, the tokens number slots without memory")
    found.append(
        f"page tables and page states take {size_text(tables_bytes)} beside the pools, of what"
        " mem_fraction leaves"
    )
    return found
