"""The figures of a plan, each with the formula and the inputs that made it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvlife.sizing.basis import Basis
from kvlife.sizing.buffers import PagedPool
from kvlife.sizing.figures import Figure, Value, identifier
from kvlife.sizing.result import PoolPlan
from kvlife.sizing.solving import SHARE, Sizes, StateDemand, state_share


def plan_figures(
    basis: Basis,
    sizes: Sizes,
    available: Figure,
    requests: Figure,
    pools: Sequence[PoolPlan],
    planned: int,
) -> Iterator[Figure]:
    """All of them, in the order in which one follows from another."""
    yield available
    yield from basis.figures
    if basis.demand.state is not None:
        yield from _state_figures(basis, basis.demand.state, sizes, available)
    coefficient, bias = _coefficient(basis), _bias(basis, sizes)
    yield from (_budget(basis, sizes, available), coefficient, bias)
    yield _total(basis, sizes, coefficient, bias)
    yield from _pool_figures(basis, pools)
    yield from _logical(basis, sizes)
    yield from _row_figures(basis, sizes)
    yield requests
    yield _planned(basis, sizes, pools, planned)
    yield Figure(
        name="left_over_bytes",
        value=_number(available) - planned,
        unit="bytes",
        formula="available_bytes - planned_bytes",
        inputs={"available_bytes": available.value, "planned_bytes": planned},
    )


MAIN = "max_total_num_tokens"


def _number(figure: Figure) -> int:
    assert isinstance(figure.value, int)
    return figure.value


def _state_figures(
    basis: Basis, state: StateDemand, sizes: Sizes, available: Figure
) -> Iterator[Figure]:
    cost, slots = state.cost, sizes.num_slots or 0
    slot_bytes = basis.state_group.figure_name if basis.state_group else "bytes_per_slot"
    inputs: dict[str, Value] = {slot_bytes: cost.slot_bytes}
    spent = f"(state_pool_size + 1) x {slot_bytes}"
    if cost.num_drafts:
        spent += (
            " + (min(num_requests, state_pool_size // slots_per_request) + 1)"
            f" x {slot_bytes} x num_drafts"
        )
        inputs |= {
            "num_requests": cost.num_requests,
            "slots_per_request": cost.per_request,
            "num_drafts": cost.num_drafts,
        }
    if state.wanted is None:
        share = state_share(_number(available), state.ratio)
        yield Figure(
            name="state_share_bytes",
            value=share,
            unit="bytes",
            formula="floor(available_bytes x state_ratio / (1 + state_ratio))",
            inputs={"available_bytes": available.value, "state_ratio": float(state.ratio)},
        )
        formula = f"the most slots with {spent} <= state_share_bytes"
        numbers = (
            f"{slots:,} slots take {sizes.state_bytes:,} bytes,"
            f" {slots + 1:,} would take {cost.num_bytes(slots + 1):,}, and the share is {share:,}"
        )
        found = {"state_share_bytes": share, **inputs}
    else:
        formula, numbers, found = "set by the user", f"{slots:,}", {}
    yield Figure(
        name="state_pool_size",
        value=slots,
        unit="slots",
        formula=formula,
        inputs=found,
        numbers=numbers,
        bound=sizes.why["state_pool_size"],
    )
    yield Figure(
        name="state_bytes",
        value=sizes.state_bytes,
        unit="bytes",
        formula=spent,
        inputs={"state_pool_size": slots, **inputs},
    )


def _budget(basis: Basis, sizes: Sizes, available: Figure) -> Figure:
    inputs: dict[str, Value] = {"available_bytes": available.value}
    formula = "available_bytes"
    if basis.options.unified:
        formula = "floor(available_bytes / 4096) x 4096"
    if basis.demand.state is not None:
        kept = "state_share_bytes" if sizes.why["state_pool_size"] == SHARE else "state_bytes"
        formula += f" - {kept}"
        inputs[kept] = (
            sizes.state_bytes
            if kept == "state_bytes"
            else state_share(_number(available), basis.demand.state.ratio)
        )
    return Figure(
        name="paged_budget_bytes", value=sizes.budget, unit="bytes", formula=formula, inputs=inputs
    )


def _scaled(basis: Basis) -> list[PagedPool]:
    """The pools that grow with the main one."""
    return [pool for pool in basis.pools[1:] if pool.name not in basis.demand.window_len]


def _coefficient(basis: Basis) -> Figure:
    main, scaled, ratio = basis.pools[0], _scaled(basis), basis.demand.ratio
    terms = [group.figure_name for group in main.groups]
    terms += [f"window_ratio x {pool.groups[0].figure_name}" for pool in scaled]
    inputs: dict[str, Value] = {
        group.figure_name: group.bytes_per_token
        for pool in (main, *scaled)
        for group in pool.groups
    }
    if scaled:
        inputs["window_ratio"] = float(ratio)
    return Figure(
        name="coefficient_bytes",
        value=sum((ratio * pool.bytes_per_token for pool in scaled), main.bytes_per_token),
        unit="bytes a token",
        formula=" + ".join(terms) or "0",
        inputs=inputs,
    )


def _bias(basis: Basis, sizes: Sizes) -> Figure:
    inputs = {identifier(f"reserved_page_{pool.name}"): pool.page_bytes for pool in basis.pools}
    for pool in basis.pools:
        if pool.name in basis.demand.window_len:
            inputs[identifier(f"needed_bytes_{pool.name}")] = (
                sizes.pages[pool.name] * pool.page_bytes
            )
    if basis.demand.rows is not None:
        inputs["rows_bytes"] = basis.demand.rows.num_bytes(sizes.num_tokens)
    return Figure(
        name="bias_bytes",
        value=sum(inputs.values()),
        unit="bytes",
        formula=" + ".join(inputs),
        inputs=inputs,
    )


def _total(basis: Basis, sizes: Sizes, coefficient: Figure, bias: Figure) -> Figure:
    more = basis.demand.paged_bytes(sizes.pages[basis.pools[0].name] + 1)
    rounded = ", pages of window pools rounded down" if _scaled(basis) else ""
    return Figure(
        name="max_total_num_tokens",
        value=sizes.num_tokens,
        unit="tokens",
        formula="the most whole pages with max_total_num_tokens x coefficient_bytes + bias_bytes"
        f" <= paged_budget_bytes{rounded}",
        inputs={
            "page_size": basis.options.page_size,
            "coefficient_bytes": coefficient.value,
            "bias_bytes": bias.value,
            "paged_budget_bytes": sizes.budget,
        },
        numbers=f"{sizes.num_tokens:,} tokens take {sizes.paged_bytes:,} bytes, a page more would"
        f" take {more:,}, and {sizes.budget:,} are there",
        bound=sizes.why["max_total_num_tokens"],
    )


def _pool_figures(basis: Basis, pools: Sequence[PoolPlan]) -> Iterator[Figure]:
    main, *others = pools
    windows = [plan for plan in pools if plan.pool.window is not None]
    if windows:
        full = 0 if main in windows else main.num_tokens
        yield Figure(
            name="full_max_total_num_tokens",
            value=full,
            unit="tokens",
            formula="max_total_num_tokens" if full else "0, as no layer attends to everything",
            inputs={"max_total_num_tokens": main.num_tokens} if full else {},
        )
    for plan in others:
        needed = basis.demand.window_len.get(plan.name)
        scaled: dict[str, Value] = {
            "max_total_num_tokens": main.num_tokens,
            "page_size": plan.pool.page_size,
            "window_ratio": float(basis.demand.ratio),
        }
        yield Figure(
            name=identifier(f"num_tokens_{plan.name}"),
            value=plan.num_tokens,
            unit="tokens",
            formula="floor(max_total_num_tokens / page_size x window_ratio) x page_size"
            if needed is None
            else identifier(f"needed_window_len_{plan.name}"),
            inputs=scaled
            if needed is None
            else {identifier(f"needed_window_len_{plan.name}"): needed},
            bound=plan.why,
        )
    if windows:
        inputs = {
            identifier(f"num_tokens_{plan.name}"): plan.num_tokens
            for plan in windows
            if plan in others
        }
        yield Figure(
            name="swa_max_total_num_tokens",
            value=min(plan.num_tokens for plan in windows),
            unit="tokens",
            formula=f"min({', '.join(inputs)})" if len(inputs) > 1 else next(iter(inputs), MAIN),
            inputs=inputs or {MAIN: main.num_tokens},
        )


def _logical(basis: Basis, sizes: Sizes) -> Iterator[Figure]:
    for group in basis.groups:
        if group.kind == "compressed":
            ratio = group.tokens_per_entry
            yield Figure(
                name=identifier(f"num_entries_{group.name}"),
                value=sizes.num_tokens // ratio,
                unit="entries",
                formula="max_total_num_tokens / tokens_per_entry",
                inputs={"max_total_num_tokens": sizes.num_tokens, "tokens_per_entry": ratio},
            )
    host = basis.options.host_to_device_ratio
    if host > 1:
        yield Figure(
            name="logical_max_total_num_tokens",
            value=sizes.num_tokens * host,
            unit="tokens",
            formula="max_total_num_tokens x host_to_device_ratio",
            inputs={"max_total_num_tokens": sizes.num_tokens, "host_to_device_ratio": host},
        )


def _row_figures(basis: Basis, sizes: Sizes) -> Iterator[Figure]:
    rows, group = basis.demand.rows, basis.row_group
    if rows is None or group is None:
        return
    count = rows.count(sizes.num_tokens)
    known = "max_running_requests asked for" if rows.num_rows is not None else "the estimate"
    yield Figure(
        name="rows_bytes",
        value=count * rows.row_bytes,
        unit="bytes",
        formula=f"(requests + 1) x {group.figure_name}",
        inputs={"requests": count - 1, group.figure_name: rows.row_bytes},
        why=f"one for each request, {known}, and one for padding",
    )


def _planned(basis: Basis, sizes: Sizes, pools: Sequence[PoolPlan], planned: int) -> Figure:
    inputs: dict[str, Value] = {
        identifier(f"bytes_of_{plan.name}"): plan.num_bytes for plan in pools
    }
    if basis.demand.state is not None:
        inputs["state_bytes"] = sizes.state_bytes
    if basis.demand.rows is not None:
        inputs["rows_bytes"] = basis.demand.rows.num_bytes(sizes.num_tokens)
    formula = " + ".join(inputs)
    if basis.options.unified:
        formula = f"{formula}, in one buffer of whole units of 4,096 bytes"
    if basis.options.prefill_only:
        formula, inputs = "0, as there is no pool", {}
    return Figure(name="planned_bytes", value=planned, unit="bytes", formula=formula, inputs=inputs)
