"""A plan as lines for people: what fits, the buffers, and the arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from kvlife.replay.output.columns import Line, aligned, counted, noted
from kvlife.replay.output.quoting import printable
from kvlife.sizing import Figure, KVCacheConfigResult, size_text
from kvlife.sizing.figures import Value, shown

LABEL = 12


def plan_lines(model: str, plan: KVCacheConfigResult) -> Iterator[Line]:
    """The whole report; `model` is what the plan is for."""
    yield "bold", printable(model)
    yield from _summary(plan)
    yield "", ""
    yield from _table("pool", "lrrrrl", _pool_rows(plan))
    yield "", ""
    yield from _table("buffer", "lllr", _buffer_rows(plan))
    yield "", ""
    yield "bold", "how each figure comes about"
    for figure in plan.figures:
        yield from figure_lines(figure)
    if plan.notes:
        yield "", ""
    for note in plan.notes:
        yield from noted("dim", f"{'note':<{LABEL}}", note)


def _summary(plan: KVCacheConfigResult) -> Iterator[Line]:
    fits = f"{plan.max_total_num_tokens:,} tokens, {counted(plan.max_running_requests, 'request')}"
    whole = plan.max_total_num_tokens // plan.context_len
    yield "green", f"{'fits':<{LABEL}}{fits} at once, in {plan.dtype}"
    yield "", f"{'':<{LABEL}}{whole:,} of the whole context of {plan.context_len:,} tokens"
    for label, num_bytes in (
        ("available", plan.available_bytes),
        ("planned", plan.planned_bytes),
        ("left over", plan.left_over_bytes),
    ):
        yield "", f"{label:<{LABEL}}{num_bytes:,} bytes, {size_text(num_bytes)}"
    rows = f"{plan.pool_config.max_requests:,} of {plan.row_capacity:,} tokens"
    yield "", f"{'rows':<{LABEL}}{rows}"


def _table(first: str, sides: str, rows: list[tuple[str, ...]]) -> Iterator[Line]:
    for number, line in enumerate(aligned(rows, sides)):
        yield "" if number else "dim", line
    if len(rows) == 1:
        yield "", f"no {first} at all"


def _pool_rows(plan: KVCacheConfigResult) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("pool", "tokens", "pages", "bytes a token", "bytes", "bound by")
    ]
    rows += [
        (
            f"{part.name}, window {part.pool.window:,}" if part.pool.window else part.name,
            f"{part.num_tokens:,}",
            f"{part.num_pages:,}",
            shown(part.pool.bytes_per_token),
            f"{part.num_bytes:,}",
            part.why,
        )
        for part in plan.pools
    ]
    if plan.state is not None:
        slots = f"{counted(plan.state.num_slots, 'slot')} of {plan.state.slot_bytes:,}"
        rows.append((plan.state.name, slots, "", "", f"{plan.state.num_bytes:,}", plan.state.why))
    return rows


def _buffer_rows(plan: KVCacheConfigResult) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("buffer", "shape", "dtype", "bytes")]
    rows += [
        (buffer.name, " x ".join(map(str, buffer.shape)), buffer.dtype, f"{buffer.num_bytes:,}")
        for buffer in plan.buffers
    ]
    return rows


def figure_lines(figure: Figure, depth: int = 0) -> Iterator[Line]:
    """A figure: its value, its formula in names, and the same in numbers."""
    margin = "  " * depth
    yield "", f"{margin}{figure.name}: {number(figure.value)} {figure.unit}"
    yield from noted("dim", f"{margin}    = ", figure.formula)
    if figure.filled != figure.formula:
        yield from noted("dim", f"{margin}    = ", figure.filled)
    if figure.bound:
        yield from noted("dim", f"{margin}    bound by ", figure.bound)
    if figure.why:
        yield from noted("dim", f"{margin}    ", figure.why)


def explained_lines(plan: KVCacheConfigResult, name: str) -> Iterator[Line]:
    """A figure and those behind it, further in, with the inputs that are no figures."""
    for depth, figure in plan.figures.behind(name):
        yield from figure_lines(figure, depth)
        given = [
            f"{label} {number(value)}"
            for label, value in figure.inputs
            if label not in plan.figures
        ]
        if given:
            yield from noted("dim", f"{'  ' * depth}    with ", ", ".join(given))


def number(value: Value) -> str:
    """A number for people; one that is not whole also as a decimal."""
    if isinstance(value, Fraction) and value.denominator > 1:
        return f"{shown(value)} (about {float(value):,.2f})"
    return shown(value)
