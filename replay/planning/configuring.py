"""From the options to a configurator: files read, sizes parsed, defaults chosen."""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from kvlife.errors import ConfigError
from kvlife.replay.planning.plan_options import PlanOptions
from kvlife.sizing import (
    CPU,
    CUDA,
    HIP,
    ByRatio,
    ByRequests,
    Draft,
    KVCacheConfigurator,
    ModelGeometry,
    Parallel,
    StateSizing,
    checkpoint_quantization,
    configure_kv_cache_dtype,
    parse_bytes,
)
from kvlife.sizing.vetting import vet_whole

PLATFORMS = {"cuda": CUDA, "hip": HIP, "cpu": CPU}
MAX_CONFIG_BYTES = 16 << 20
# Where ModelOpt says it.
QUANTIZATION_FILE = "hf_quant_config.json"


@attrs.frozen(kw_only=True)
class Request:
    """What is asked for: the configurator, and what was free before the weights."""

    configurator: KVCacheConfigurator
    gpu_bytes: int


def read_request(options: PlanOptions) -> Request:
    """Read the files and sizes that the options name; raises `ConfigError`."""
    config = read_config(options.config)
    geometry = _geometry(config, options)
    dtype = configure_kv_cache_dtype(
        options.dtype,
        geometry.model_dtype,
        _quantization(config, options.config),
        PLATFORMS[options.platform],
    )
    gpu_bytes = parse_bytes("--gpu-memory", options.gpu_memory)
    reserve = {} if options.reserve is None else {"--reserve": options.reserve}
    return Request(
        gpu_bytes=gpu_bytes,
        configurator=KVCacheConfigurator(
            geometry=geometry,
            dtype=dtype,
            free_bytes=_free_bytes(options, gpu_bytes),
            mem_fraction=options.mem_fraction,
            reservations={name: parse_bytes(name, size) for name, size in reserve.items()},
            parallel=Parallel(
                tp=options.tp,
                pp=options.pp,
                pp_rank=options.pp_rank,
                attention_dp=options.dp,
                dcp=options.dcp,
            ),
            draft=_draft(options),
            draft_steps=options.draft_steps,
            page_size=options.page_size,
            context_len=options.context,
            max_total_tokens=options.max_tokens,
            max_running_requests=options.max_running,
            prefix_cache=not options.without_prefix_cache,
            overlap=not options.without_overlap,
            window_sizing=_window_sizing(options),
            state_sizing=StateSizing(
                ratio=options.state_ratio,
                num_slots=options.state_slots,
                tracking=options.tracking,
                decode_locks=not options.unlocked_decode,
            ),
            unified=options.unified,
            prefill_only=options.prefill_only,
            host_to_device_ratio=options.host_ratio,
        ),
    )


def read_config(path: Path) -> dict[str, object]:
    """The object in a config.json; raises `ConfigError` that names the file."""
    if not path.is_file():
        raise ConfigError(f"{path} is no file: name the model's config.json")
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise ConfigError(f"{path} is larger than 16 MiB, and no config.json is")
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} holds no JSON object, and a config.json does")
    return found


def _geometry(config: dict[str, object], options: PlanOptions) -> ModelGeometry:
    """The model as its config has it; a context that it lacks is the one that is asked for."""
    dtype = options.model_dtype
    try:
        return ModelGeometry.from_config(config, model_dtype=dtype)
    except ConfigError:
        if options.context is None:
            raise
        return ModelGeometry.from_config(config, model_dtype=dtype, context_len=options.context)


def _quantization(config: dict[str, object], path: Path) -> dict[str, object]:
    """What the checkpoint says of it, in its config.json and in the file beside it."""
    beside = path.with_name(QUANTIZATION_FILE)
    found = read_config(beside) if beside.is_file() else {}
    return {**found, **checkpoint_quantization(config)}


def _free_bytes(options: PlanOptions, gpu_bytes: int) -> int:
    if options.free is not None and options.weights is not None:
        raise ConfigError("--free and --weights say the same: give one of them")
    if options.free is not None:
        return parse_bytes("--free", options.free)
    if options.weights is None:
        raise ConfigError(
            "how much memory is left is not known: give --weights 15GiB (on each GPU), or --free"
            " 64GiB (as measured with the weights loaded)"
        )
    weights = parse_bytes("--weights", options.weights)
    if weights > gpu_bytes:
        raise ConfigError(
            f"--weights {options.weights} is more than --gpu-memory {options.gpu_memory}: spread"
            " the model over more GPUs, and give what lies on each"
        )
    return gpu_bytes - weights


def _draft(options: PlanOptions) -> Draft | None:
    vet_whole("--draft-tokens", options.draft_tokens)
    vet_whole("--draft-topk", options.draft_topk)
    if options.draft is None:
        if options.draft_config is not None or options.draft_layers is not None:
            raise ConfigError("--draft-config and --draft-layers are of a draft: give --draft too")
        return None
    own = options.draft_config
    layers = options.draft_layers
    return Draft(
        algorithm=options.draft,
        num_layers=1 if layers is None and own is None else layers,
        geometry=None if own is None else ModelGeometry.from_config(read_config(own)),
        num_draft_tokens=options.draft_tokens,
        topk=options.draft_topk,
    )


def _window_sizing(options: PlanOptions) -> ByRatio | ByRequests:
    ratio = ByRatio(ratio=options.window_ratio)
    requests = ByRequests(
        eviction_interval=options.eviction_interval, chunk_len=options.chunk_tokens
    )
    return requests if options.window_by_requests else ratio
