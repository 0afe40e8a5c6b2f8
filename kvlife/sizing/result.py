"""What planning gives: every number of it, the engine's configuration, the buffers, and why."""

from __future__ import annotations

import attrs

from kvlife.config import PoolConfig
from kvlife.sizing.buffers import Buffer, PagedPool
from kvlife.sizing.figures import Figure, Figures
from kvlife.sizing.tables import Table


@attrs.frozen(kw_only=True)
class PoolPlan:
    """One paged pool: `num_pages` counts the reserved page 0, `num_tokens` does not."""

    pool: PagedPool
    num_pages: int
    num_tokens: int
    num_bytes: int
    why: str

    @property
    def name(self) -> str:
        """The name of the cache group."""
        return self.pool.name


@attrs.frozen(kw_only=True)
class StatePlan:
    """The state pool: usable slots, what one takes, and the rows of the drafts' states."""

    name: str
    num_slots: int
    slot_bytes: int
    slots_per_request: int
    draft_rows: int
    num_drafts: int
    num_bytes: int
    why: str


@attrs.frozen(kw_only=True)
class CompressedPlan:
    """The compressed entries of one ratio: so many, one for every `ratio` tokens."""

    name: str
    ratio: int
    num_entries: int


@attrs.frozen(kw_only=True)
class KVCacheConfigResult:
    """A plan, frozen: plain numbers, names and records, and no object of a device.

    `full_max_total_num_tokens` and `swa_max_total_num_tokens` are None where the model has no
    sliding window; with several windows the latter is the least. `logical_max_total_num_tokens`
    counts what the host holds too. `rows_pool_size` are the states that each request has one of,
    whatever is cached (those of compressors). `pool_config` is the engine's. `buffers` are what is
    made on the device within the budget, `tables` what stands beside it, `left_over_bytes` what is
    available and not planned. `figures` says why.
    """

    max_total_num_tokens: int
    max_running_requests: int
    full_max_total_num_tokens: int | None
    swa_max_total_num_tokens: int | None
    logical_max_total_num_tokens: int
    compressed: tuple[CompressedPlan, ...]
    state: StatePlan | None
    rows_pool_size: int | None
    pools: tuple[PoolPlan, ...]
    page_size: int
    context_len: int
    row_capacity: int
    dtype: str
    pool_config: PoolConfig
    buffers: tuple[Buffer, ...]
    tables: tuple[Table, ...]
    index_spaces: tuple[tuple[str, int], ...]
    available_bytes: int
    planned_bytes: int
    figures: Figures
    notes: tuple[str, ...] = ()

    @property
    def left_over_bytes(self) -> int:
        """Bytes that are available and that no pool takes."""
        return self.available_bytes - self.planned_bytes

    @property
    def state_pool_size(self) -> int | None:
        """The usable state slots, None where no layer keeps a state."""
        return None if self.state is None else self.state.num_slots

    def why(self, name: str) -> Figure:
        """The figure of that name, with its formula and inputs; `ConfigError` lists the known."""
        return self.figures[name]
