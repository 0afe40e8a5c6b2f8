"""Plans side by side: one option takes several values, and all else stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from kvlife.errors import ConfigError
from kvlife.replay.output.columns import Line, aligned, noted
from kvlife.replay.planning.configuring import read_request
from kvlife.replay.planning.plan_options import PlanOptions
from kvlife.sizing import KVCacheConfigResult, parse_bytes
from kvlife.sizing.figures import shown
from kvlife.sizing.ranks import plan_pipeline

DTYPES = ("bf16", "fp8_e4m3", "mxfp8", "nvfp4")
TPS = (1, 2, 4, 8, 16)
PAGE_SIZES = (1, 16, 32, 64, 128, 256)
LEAST_CONTEXT = 4096


@attrs.frozen
class Variant:
    """One value of what is swept, and what comes of it: a plan, or why there is none."""

    value: str
    is_asked: bool
    plan: KVCacheConfigResult | None
    refusal: str = ""


def sweep(options: PlanOptions) -> list[Variant]:
    """A plan for each value of `options.sweep`; raises `ConfigError` where none can be made."""
    found = []
    for value, changed, is_asked in _variants(options):
        try:
            request = read_request(changed)
            plan = plan_pipeline(request.configurator, request.gpu_bytes)[options.pp_rank]
        except ConfigError as error:
            found.append(Variant(value, is_asked, None, str(error)))
            continue
        kept = options.sweep == "dtype" and plan.dtype != value
        label = f"{value}, kept as {plan.dtype}" if kept else value
        found.append(Variant(label, is_asked, plan))
    if not any(variant.plan for variant in found):
        raise ConfigError(f"none of these can be planned; {found[0].value}: {found[0].refusal}")
    return found


def _variants(options: PlanOptions) -> Iterator[tuple[str, PlanOptions, bool]]:
    """Each value, the options with it, and whether it is what the options ask for."""
    if options.sweep == "dtype":
        asked = read_request(options).configurator.dtype.name
        for dtype in (*DTYPES, *({asked} - {*DTYPES})):
            yield dtype, attrs.evolve(options, dtype=dtype), dtype == asked
    elif options.sweep == "tp":
        for tp in sorted({*TPS, options.tp}):
            changed = attrs.evolve(options, tp=tp, weights=_weights_at(options, tp))
            yield str(tp), changed, tp == options.tp
    elif options.sweep == "page-size":
        for page_size in sorted({*PAGE_SIZES, options.page_size}):
            changed = attrs.evolve(options, page_size=page_size)
            yield str(page_size), changed, page_size == options.page_size
    else:
        yield from _contexts(options)


def _contexts(options: PlanOptions) -> Iterator[tuple[str, PlanOptions, bool]]:
    """Powers of two up to the model's context and beyond it to the one asked for, and these two."""
    own = read_request(options).configurator.geometry.context_len
    asked = options.context or own
    most = max(own, asked)
    doubled = [LEAST_CONTEXT << power for power in range(most.bit_length())]
    for context in sorted({own, asked, *(size for size in doubled if size < most)}):
        yield f"{context:,}", attrs.evolve(options, context=context), context == asked


def _weights_at(options: PlanOptions, tp: int) -> str | None:
    """The weights on each GPU, spread over other ranks than those they were given for."""
    if options.weights is None or tp == options.tp:
        return options.weights
    return f"{parse_bytes('--weights', options.weights) * options.tp // tp}B"


def sweep_lines(options: PlanOptions, variants: Sequence[Variant]) -> Iterator[Line]:
    """A comparison table; `*` is what the other options ask for."""
    windows = any(variant.plan and variant.plan.swa_max_total_num_tokens for variant in variants)
    states = any(variant.plan and variant.plan.state for variant in variants)
    rows = [_heads(str(options.sweep), windows=windows, states=states)]
    rows += [
        _row(variant, variant.plan, windows=windows, states=states)
        for variant in variants
        if variant.plan is not None
    ]
    for number, line in enumerate(aligned(rows, "l" + "r" * (len(rows[0]) - 1))):
        yield "" if number else "dim", line
    for variant in variants:
        if variant.plan is None:
            yield from noted("yellow", f"{variant.value}: ", variant.refusal)
    if options.sweep == "tp" and options.weights is not None:
        yield "dim", "weights on each GPU: those given, spread evenly over the ranks"
    yield "dim", "* as asked for"


def _heads(what: str, *, windows: bool, states: bool) -> tuple[str, ...]:
    heads = [what, "bytes a token", "tokens", "requests", "of whole context"]
    heads += ["window tokens"] if windows else []
    heads += ["state slots"] if states else []
    return (*heads, "planned bytes", "left over")


def _row(
    variant: Variant, plan: KVCacheConfigResult, *, windows: bool, states: bool
) -> tuple[str, ...]:
    cells = [
        variant.value + (" *" if variant.is_asked else ""),
        shown(plan.figures["coefficient_bytes"].value),
        f"{plan.max_total_num_tokens:,}",
        f"{plan.max_running_requests:,}",
        f"{plan.max_total_num_tokens // plan.context_len:,}",
    ]
    cells += [f"{plan.swa_max_total_num_tokens or 0:,}"] if windows else []
    cells += [f"{plan.state_pool_size or 0:,}"] if states else []
    return (*cells, f"{plan.planned_bytes:,}", f"{plan.left_over_bytes:,}")
