"""A plan as one JSON object."""

from __future__ import annotations

from fractions import Fraction

import attrs

from kvlife.sizing import Figure, KVCacheConfigResult
from kvlife.sizing.figures import Value

# What stands in the object under its own name.
NUMBERS = (
    "max_total_num_tokens",
    "max_running_requests",
    "full_max_total_num_tokens",
    "swa_max_total_num_tokens",
    "logical_max_total_num_tokens",
    "state_pool_size",
    "rows_pool_size",
    "page_size",
    "context_len",
    "row_capacity",
    "dtype",
    "available_bytes",
    "planned_bytes",
    "left_over_bytes",
)


def plan_json(plan: KVCacheConfigResult) -> dict[str, object]:
    """Every number of the plan, its pools and buffers, and each figure with its formula."""
    return {
        **{name: getattr(plan, name) for name in NUMBERS},
        "compressed": [attrs.asdict(part) for part in plan.compressed],
        "state": None if plan.state is None else attrs.asdict(plan.state),
        "pools": [
            {
                "name": part.name,
                "window": part.pool.window,
                "num_tokens": part.num_tokens,
                "num_pages": part.num_pages,
                "page_bytes": part.pool.page_bytes,
                "bytes_per_token": plain(part.pool.bytes_per_token),
                "num_bytes": part.num_bytes,
                "why": part.why,
            }
            for part in plan.pools
        ],
        "buffers": [attrs.asdict(buffer) for buffer in plan.buffers],
        "tables": [{**attrs.asdict(table), "num_bytes": table.num_bytes} for table in plan.tables],
        "pool_config": attrs.asdict(plan.pool_config),
        "figures": [figure_json(figure) for figure in plan.figures],
        "notes": list(plan.notes),
    }


def figure_json(figure: Figure) -> dict[str, object]:
    """One figure, with its formula in names and in numbers."""
    return {
        "name": figure.name,
        "value": plain(figure.value),
        "unit": figure.unit,
        "formula": figure.formula,
        "numbers": figure.filled,
        "inputs": {name: plain(value) for name, value in figure.inputs},
        "bound": figure.bound,
        "why": figure.why,
    }


def plain(value: Value) -> int | float | str:
    """A value as JSON has it: a fraction as a number."""
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    return value
