"""The options of `kvlife plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import attrs
from cyclopts import Parameter

from kvlife.replay.options import AsJson
from kvlife.sizing import StateSizing

Sweep = Literal["dtype", "context", "tp", "page-size"]


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class PlanOptions:
    """The model, the memory, how the model is spread, and how the pools are made."""

    config: Annotated[Path, Parameter(help="The model's config.json.")]
    gpu_memory: Annotated[
        str, Parameter(help="What the GPU has free before the weights: 80GiB, or 80GB.")
    ]
    free: Annotated[
        str | None, Parameter(help="What it has free with the weights loaded, as measured.")
    ] = None
    weights: Annotated[
        str | None, Parameter(help="In the place of --free: the weights on each GPU.")
    ] = None
    mem_fraction: Annotated[
        float, Parameter(help="The part of the memory that weights and pools may take.")
    ] = 0.88
    reserve: Annotated[str | None, Parameter(help="Memory that no pool may take.")] = None
    tp: Annotated[int, Parameter(help="Tensor-parallel ranks.")] = 1
    pp: Annotated[int, Parameter(help="Pipeline stages; all plan the least of them.")] = 1
    pp_rank: Annotated[int, Parameter(help="The stage that is shown.")] = 0
    dp: Annotated[int, Parameter(help="Copies of the attention among the --tp ranks.")] = 1
    dcp: Annotated[int, Parameter(help="Ranks that share the tokens of a sequence.")] = 1
    dtype: Annotated[
        str, Parameter(help="Of the KV: auto, bf16, fp16, fp8_e4m3, fp8_e5m2, mxfp8, nvfp4.")
    ] = "auto"
    model_dtype: Annotated[
        str | None, Parameter(help="The model's own; by default what its config says.")
    ] = None
    platform: Annotated[
        Literal["cuda", "hip", "cpu"], Parameter(help="What the device is, for the dtype.")
    ] = "cuda"
    page_size: Annotated[int, Parameter(help="Tokens a page.")] = 16
    context: Annotated[
        int | None, Parameter(help="The longest request in tokens; by default the model's.")
    ] = None
    max_running: Annotated[
        int | None, Parameter(help="Requests at most, of all --dp copies together.")
    ] = None
    max_tokens: Annotated[int | None, Parameter(help="Tokens at most in the pool.")] = None
    draft: Annotated[
        str | None, Parameter(help="What drafts: EAGLE, STANDALONE, DFLASH or DSPARK.")
    ] = None
    draft_layers: Annotated[
        int | None, Parameter(help="Layers of the draft (EAGLE, STANDALONE); by default 1.")
    ] = None
    draft_config: Annotated[
        Path | None, Parameter(help="The draft's own config.json (DFLASH, DSPARK).")
    ] = None
    draft_tokens: Annotated[int, Parameter(help="Tokens that one step verifies at most.")] = 4
    draft_steps: Annotated[int, Parameter(help="How deep one step drafts.")] = 3
    draft_topk: Annotated[int, Parameter(help="Branches of the draft; above 1, a tree.")] = 1
    window_ratio: Annotated[
        float, Parameter(help="Tokens of window pools for each token of the full pool.")
    ] = 0.8
    window_by_requests: Annotated[
        bool, Parameter(help="Size window pools from what --max-running requests hold.")
    ] = False
    eviction_interval: Annotated[
        int, Parameter(help="With --window-by-requests: steps between evictions.")
    ] = 1
    chunk_tokens: Annotated[
        int, Parameter(help="With --window-by-requests: tokens of a prefill chunk.")
    ] = 8192
    state_ratio: Annotated[
        float, Parameter(help="Bytes of the state pool for each byte of the full pool.")
    ] = float(StateSizing().ratio)
    state_slots: Annotated[
        int | None, Parameter(help="State slots, in the place of the ratio.")
    ] = None
    tracking: Annotated[
        Literal["off", "lazy", "on"], Parameter(help="Buffers that track a request's state.")
    ] = "off"
    unlocked_decode: Annotated[
        bool, Parameter(help="A decoding request keeps no state of the cache locked.")
    ] = False
    without_prefix_cache: Annotated[bool, Parameter(help="No prefix is kept for others.")] = False
    without_overlap: Annotated[bool, Parameter(help="A step waits for the one before it.")] = False
    unified: Annotated[bool, Parameter(help="One byte buffer for several groups.")] = False
    prefill_only: Annotated[bool, Parameter(help="A server that keeps no KV at all.")] = False
    host_ratio: Annotated[
        int, Parameter(help="Tokens that the host holds for each on the device (HiSparse).")
    ] = 1
    sweep: Annotated[Sweep | None, Parameter(help="Compare plans over this.")] = None
    explain: Annotated[str | None, Parameter(help="Show how this one figure comes about.")] = None
    json: AsJson = False
