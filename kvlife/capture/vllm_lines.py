"""The lines of a vLLM capture, format `kvlife-vllm-capture/1`: one class for each op.

A line is decoded strictly: a missing field, a wrong type, a number out of range and an op that
nobody knows are refused. A field that stands there besides those named here is let be.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

FORMAT = "kvlife-vllm-capture/1"

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Block = Annotated[int, msgspec.Meta(ge=0, lt=1 << 26)]
BlockName = Annotated[str, msgspec.Meta(pattern="^(0|[1-9][0-9]{0,7})$")]
# vLLM does not maintain the count of its null block, which goes below zero.
Refs = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]
Token = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
Rid = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
Blocks = list[Block]
Hashes = list[Hash | None]
Size = Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]


class Group(msgspec.Struct, kw_only=True):
    """One KV-cache group of the header; lengths in tokens."""

    spec: str
    manager: str
    block_size: Size
    sliding_window: Size | None
    num_layers: Count


class Header(msgspec.Struct, kw_only=True):
    """The first line: the engine, its pool and its limits."""

    format: str
    engine: str
    version: str
    block_size: Size
    num_blocks: Size
    null_block: int
    max_model_len: Size
    max_num_seqs: Size
    prefix_caching: bool
    hash_algo: str
    hash_block_size: Size
    none_hash: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{2})*$", max_length=128)]
    groups: Annotated[list[Group], msgspec.Meta(min_length=1, max_length=64)]
    workload: str


class Line(msgspec.Struct, tag_field="op", kw_only=True):
    """What every line has: `call` numbers calls by their start, `parent` is the enclosing one."""

    seq: Number
    t_ns: Number
    enter_ns: Number
    step: Number
    call: Number
    parent: Number | None
    free: Count

    @property
    def op(self) -> str:
        """The name of the call."""
        return str(self.__struct_config__.tag)


class RequestLine(Line):
    """A line about one request."""

    req: Rid


class PoolLine(RequestLine):
    """A line about blocks of one group."""

    group: Count


class GetNewBlocks(PoolLine, tag="get_new_blocks"):
    """Blocks are handed out."""

    n: Count
    blocks: Blocks
    refs: list[Refs]


class MaybeEvictCachedBlock(PoolLine, tag="maybe_evict_cached_block"):
    """A block about to be handed out loses its hash, if it has one."""

    blocks: Annotated[Blocks, msgspec.Meta(min_length=1, max_length=1)]
    refs: list[Refs]
    evicted: bool
    hashes: list[Hash] = []
    hash_groups: list[Count] = []


class Touch(PoolLine, tag="touch"):
    """A prefix hit is taken."""

    blocks: Blocks
    refs: list[Refs]
    hashes: Hashes
    was_free: Blocks


class FreeBlocks(PoolLine, tag="free_blocks"):
    """Blocks are given back, in this order."""

    blocks: Blocks
    refs: list[Refs]
    hashes: Hashes
    freed: Blocks
    why: str


class CacheFullBlocks(PoolLine, tag="cache_full_blocks"):
    """Full blocks get their hash; `masked` ones of the range do not."""

    num_cached_blocks: Count
    num_full_blocks: Count
    block_size: Size
    masked: list[Annotated[int, msgspec.Meta(ge=0, le=1)]] | None
    blocks: Blocks
    index: list[Count]
    refs: list[Refs]
    hashes: list[Hash]
    num_tokens: Count


class ResetPrefixCache(Line, tag="reset_prefix_cache"):
    """All hashes are dropped, unless a block is in use."""

    ok: bool


class GetComputedBlocks(RequestLine, tag="get_computed_blocks"):
    """A prefix lookup; it changes nothing."""

    group_blocks: list[Blocks]
    group_refs: list[list[Refs]]
    group_hashes: list[Hashes]
    hit_tokens: Count
    num_tokens: Count
    num_preemptions: Count


class AllocateSlots(RequestLine, tag="allocate_slots"):
    """Room for a step of one request; lengths in tokens, `table` is the one afterwards."""

    ok: bool
    status: str
    num_new_tokens: Count
    num_new_computed_tokens: Count
    num_lookahead_tokens: Count
    num_computed_tokens: Count
    num_tokens: Count
    num_prompt_tokens: Count
    new_blocks: list[Blocks] | None
    table: list[Blocks]
    free_before: Count


class Free(RequestLine, tag="free"):
    """A request's whole table is given back; `table` is the one before."""

    table: list[Blocks]
    why: str


class AddRequest(RequestLine, tag="add_request"):
    """A request arrives."""

    prompt_token_ids: list[Token]
    num_prompt_tokens: Size
    max_tokens: Count
    block_hashes: list[Hash]
    status: str


class Schedule(Line, tag="schedule"):
    """A step is put together: tokens for each request."""

    scheduled: dict[Rid, Count]
    total_tokens: Count
    new: list[Rid]
    resumed: list[Rid]
    preempted: list[Rid]
    finished_before: list[Rid]
    spec: dict[Rid, list[int]]
    computed_after: dict[Rid, Count]
    running: list[Rid]
    waiting: list[Rid]
    usage: float


class UpdateFromOutput(Line, tag="update_from_output"):
    """The step's result is in."""

    running: list[Rid]
    waiting: list[Rid]
    computed_after: dict[Rid, Count]


class AppendTokens(RequestLine, tag="append_tokens"):
    """A request gets the tokens that were generated."""

    tokens: list[Token]
    stopped: bool
    num_tokens: Count
    num_computed_tokens: Count
    status: str


class DraftTokens(Line, tag="draft_tokens"):
    """Tokens proposed for the next step."""

    drafts: dict[Rid, list[int]]


class PreemptRequest(RequestLine, tag="preempt_request"):
    """A running request loses its blocks and waits again."""

    num_computed_tokens_before: Count
    num_tokens: Count
    num_output_tokens: Count
    num_preemptions: Count
    free_before: Count
    status: str


class FinishRequests(Line, tag="finish_requests"):
    """Requests are ended from outside."""


class FreeRequest(RequestLine, tag="free_request"):
    """A request ends, for any reason."""

    status: str
    num_prompt_tokens: Count
    num_output_tokens: Count
    num_computed_tokens: Count
    num_preemptions: Count
    free_before: Count


class SchedulerReset(Line, tag="scheduler_reset_prefix_cache"):
    """The scheduler is asked to reset the prefix cache, with force or without."""

    ok: bool
    reset_running_requests: bool


class Snapshot(Line, tag="snapshot"):
    """The whole state between two steps; counts that are not 0, hashes as (hash, group)."""

    label: str
    free_queue: Blocks
    refs: dict[BlockName, Refs]
    hashes: dict[BlockName, tuple[Hash, Count]]
    cached_keys: Count
    tables: dict[Rid, list[Blocks]]
    running: list[Rid]
    waiting: list[Rid]


class End(Line, tag="end"):
    """The last line."""

    steps: Number
    counts: dict[str, Number]
    event_counts: dict[str, Number]


AnyLine = (
    GetNewBlocks
    | MaybeEvictCachedBlock
    | Touch
    | FreeBlocks
    | CacheFullBlocks
    | ResetPrefixCache
    | GetComputedBlocks
    | AllocateSlots
    | Free
    | AddRequest
    | Schedule
    | UpdateFromOutput
    | AppendTokens
    | DraftTokens
    | PreemptRequest
    | FinishRequests
    | FreeRequest
    | SchedulerReset
    | Snapshot
    | End
)
