"""`kvlife plan`: how many tokens and requests fit, in which pools, and why."""

from __future__ import annotations

import json as json_format

from kvlife.errors import ConfigError
from kvlife.replay.cli import FINE
from kvlife.replay.output.columns import print_lines
from kvlife.replay.planning.configuring import Request, read_request
from kvlife.replay.planning.plan_json import figure_json, plan_json
from kvlife.replay.planning.plan_options import PlanOptions
from kvlife.replay.planning.plan_report import explained_lines, plan_lines
from kvlife.replay.planning.sweeping import Variant, sweep, sweep_lines
from kvlife.sizing import KVCacheConfigResult
from kvlife.sizing.ranks import plan_pipeline


def plan(options: PlanOptions | None = None) -> int:
    """Say how many tokens and requests fit into a GPU, in which pools, and why.

    Sizes have their unit: 80GiB is 80 x 2^30 bytes, 80GB is 80 x 10^9. Exit status: 0 a plan, 2
    there is none, or the config or the arguments are unusable.
    """
    if options is None:
        raise ConfigError("name the model and the memory: --config config.json --gpu-memory 80GiB")
    if options.sweep is not None:
        if options.explain is not None:
            raise ConfigError("--explain is about one plan, and --sweep makes several: leave one")
        _show_sweep(options, sweep(options))
        return FINE
    request = read_request(options)
    found = plan_pipeline(request.configurator, request.gpu_bytes)[options.pp_rank]
    if options.explain is not None:
        _show_figure(options, found, options.explain)
    elif options.json:
        print(json_format.dumps(plan_json(found)))
    else:
        print_lines(plan_lines(_title(options, request), found))
    return FINE


def _title(options: PlanOptions, request: Request) -> str:
    geometry = request.configurator.geometry
    ranks = f"tp {options.tp}"
    if options.pp > 1:
        ranks += f", pp rank {options.pp_rank} of {options.pp}"
    for name, num in (("dp", options.dp), ("dcp", options.dcp)):
        ranks += f", {name} {num}" if num > 1 else ""
    return f"{options.config}: {len(geometry.layers)} layers, {ranks}"


def _show_figure(options: PlanOptions, found: KVCacheConfigResult, name: str) -> None:
    if options.json:
        figures = found.figures.behind(name)
        print(json_format.dumps([figure_json(figure) for _, figure in figures]))
    else:
        print_lines(explained_lines(found, name))


def _show_sweep(options: PlanOptions, variants: list[Variant]) -> None:
    if not options.json:
        print_lines(sweep_lines(options, variants))
        return
    rows = [
        {
            "value": variant.value,
            "asked": variant.is_asked,
            "refused": variant.refusal or None,
            "plan": None if variant.plan is None else plan_json(variant.plan),
        }
        for variant in variants
    ]
    print(json_format.dumps({"sweep": options.sweep, "variants": rows}))
