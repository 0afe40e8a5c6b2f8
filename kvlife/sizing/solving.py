"""The solve: from bytes to state slots, pages and tokens, the same on every rank of a pipeline.

    available = the share of state slots  +  tokens x coefficient + bias + what is left over

where `bias` has each pool's reserved page, and window pools that requests size. What the slots
leave of their share, less than one slot, is not given to pages: a byte more of memory, and a slot
more, would take it from them again, and more memory would plan fewer tokens. Slots and tokens are
agreed on with the other ranks before anything is refused, so that no rank waits for another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import attrs

from kvlife.errors import BudgetTooSmall, ConfigError
from kvlife.sizing.buffers import PagedPool
from kvlife.sizing.request_caps import TOKENS_EACH, estimated_requests
from kvlife.sizing.search import largest
from kvlife.sizing.states import MAX_SLOTS, StateCost
from kvlife.sizing.windows import admitting_pages

USER_LIMIT = "the user's token limit"
ENGINE_LIMIT = "the most that an engine counts"
BUDGET = "the budget"
SHARE = "the state share of the budget"
LEAST_RANK = "the least over the ranks"

# Agrees with the other ranks: takes this rank's number, gives the least of all.
Agree = Callable[[int], int]


@attrs.frozen(kw_only=True)
class StateDemand:
    """The state pool to solve for: a share of the budget, or a number of slots, and what it costs.

    `wanted` is the number of slots set by the user, `useful` the most that requests can use.
    """

    cost: StateCost
    ratio: Fraction
    wanted: int | None = None
    useful: int | None = None

    def most_slots(self, available: int) -> tuple[int, str]:
        """The slots of this rank, and what stopped them from being more; 0 where none fits."""
        if self.wanted is not None:
            fits = self.cost.num_bytes(self.wanted) <= available
            return (self.wanted, "set by the user") if fits else (0, "")
        if not self.cost.slot_bytes:
            return MAX_SLOTS, "no layer of this rank keeps a state"
        slots = self.cost.most_slots(state_share(available, self.ratio))
        if self.useful is not None and self.useful < slots:
            return self.useful, "no request can use more"
        return slots, SHARE


@attrs.frozen(kw_only=True)
class RowDemand:
    """States that each request has one of, and that no prefix keeps: `num_rows`, if it is known."""

    row_bytes: int
    context_len: int
    num_rows: int | None = None

    def count(self, num_tokens: int) -> int:
        """The rows, a padding row included, of a pool of so many tokens."""
        estimate = min(estimated_requests(num_tokens, self.context_len), num_tokens // TOKENS_EACH)
        return (estimate if self.num_rows is None else self.num_rows) + 1

    def num_bytes(self, num_tokens: int) -> int:
        """Their bytes."""
        return self.count(num_tokens) * self.row_bytes


def state_share(available: int, ratio: Fraction) -> int:
    """The bytes of the state pool: budget x r / (1 + r), rounded down."""
    return int(available * ratio / (1 + ratio))


@attrs.frozen(kw_only=True)
class Demand:
    """What to solve for: pools, the main one first, and what ties the others to it.

    `window_len` has the tokens of window pools that requests size; the others have `ratio` tokens
    for each one of the main pool. `token_limits` are limits beside memory, by who set them.
    `rows` are the states that each request has one of, whatever is cached. The engine counts
    `logical` pages for each one of the main pool on the device.
    """

    pools: tuple[PagedPool, ...]
    ratio: Fraction
    window_len: dict[str, int] = attrs.field(factory=dict)
    state: StateDemand | None = None
    rows: RowDemand | None = None
    token_limits: dict[str, int] = attrs.field(factory=dict)
    row_capacity: int = 1
    logical: int = 1

    @property
    def page_size(self) -> int:
        """Tokens a page, of every pool."""
        return self.pools[0].page_size

    @property
    def most_pages(self) -> int:
        """The most usable pages of the main pool that an engine counts."""
        most = (min(pool.most_pages for pool in self.pools) - 1) // self.logical
        return int(most / max(self.ratio, Fraction(1))) if len(self.pools) > 1 else most

    @property
    def least_pages(self) -> int:
        """The fewest usable pages of the main pool that take a request, with what goes by ratio."""
        least = -(-TOKENS_EACH // self.page_size)
        for pool in self.pools:
            if pool.window is not None and pool.name not in self.window_len:
                needed = admitting_pages(pool.window, self.page_size)
                is_main = pool is self.pools[0]
                least = max(least, needed if is_main else math.ceil(needed / self.ratio))
        return least

    def usable_pages(self, num_pages: int) -> dict[str, int]:
        """The usable pages of each pool, where the main one has so many."""
        found = {self.pools[0].name: num_pages}
        for pool in self.pools[1:]:
            fixed = self.window_len.get(pool.name)
            found[pool.name] = (
                int(num_pages * self.ratio) if fixed is None else fixed // self.page_size
            )
        return found

    def rows_bytes(self, num_pages: int) -> int:
        """Bytes of what each request has one of, where the main pool has so many pages."""
        return 0 if self.rows is None else self.rows.num_bytes(num_pages * self.page_size)

    def paged_bytes(self, num_pages: int) -> int:
        """Bytes of all paged pools, their reserved pages included, and of the rows' states."""
        pages = self.usable_pages(num_pages)
        pools = sum(pool.num_bytes(pages[pool.name] + 1) for pool in self.pools)
        return pools + self.rows_bytes(num_pages)


@attrs.frozen(kw_only=True)
class Sizes:
    """What the solve found: usable slots and pages, and why there are no more of each."""

    num_slots: int | None
    state_bytes: int
    budget: int
    pages: dict[str, int]
    paged_bytes: int
    own_tokens: int
    num_tokens: int
    why: dict[str, str]


def solve(demand: Demand, available: int, agree: Agree, *, unit_bytes: int = 1) -> Sizes:
    """The sizes that `available` bytes hold; raises `BudgetTooSmall` where they hold none.

    The paged pools get whole units of `unit_bytes`: that of one buffer for several groups.
    """
    why: dict[str, str] = {}
    slots, state_bytes, kept = None, 0, 0
    if demand.state is not None:
        own, why["state_pool_size"] = demand.state.most_slots(available)
        slots = _agreed(agree, own, "state slots")
        if slots < own:
            why["state_pool_size"] = LEAST_RANK
        _refuse_few_slots(demand.state, slots, available)
        state_bytes = demand.state.cost.num_bytes(slots)
        kept = state_bytes
        if why["state_pool_size"] == SHARE:
            kept = state_share(available, demand.state.ratio)
    budget = max(0, available) // unit_bytes * unit_bytes - kept
    own_pages, why["max_total_num_tokens"] = _most_pages(demand, slots, budget)
    tokens = _agreed(agree, own_pages * demand.page_size, "tokens")
    num_pages = tokens // demand.page_size
    if num_pages < own_pages:
        why["max_total_num_tokens"] = LEAST_RANK
    _refuse_few_pages(demand, num_pages, budget, why["max_total_num_tokens"])
    return Sizes(
        num_slots=slots,
        state_bytes=state_bytes,
        budget=budget,
        pages=demand.usable_pages(num_pages),
        paged_bytes=demand.paged_bytes(num_pages),
        own_tokens=own_pages * demand.page_size,
        num_tokens=num_pages * demand.page_size,
        why=why,
    )


def _agreed(agree: Agree, own: int, what: str) -> int:
    least = agree(own)
    if least > own:
        raise ConfigError(
            f"the ranks agreed on {least:,} {what}, and this rank has room for {own:,}: the"
            " callable that agrees must give the least of all ranks' numbers"
        )
    return least


def _most_pages(demand: Demand, slots: int | None, budget: int) -> tuple[int, str]:
    """The usable pages of the main pool of this rank, and what stopped them from being more."""
    caps = {ENGINE_LIMIT: demand.most_pages}
    for who, limit in demand.token_limits.items():
        caps[who] = limit // demand.page_size
    if demand.state is not None and slots is not None and not demand.pools[0].groups:
        # The model keeps states alone: pages take no bytes, and rows are all that uses them.
        rows = slots // demand.state.cost.per_request
        caps["no request can use more"] = rows * -(-demand.row_capacity // demand.page_size)
    name = min(caps, key=lambda cap: caps[cap])
    pages = largest(lambda num: demand.paged_bytes(num) <= budget, max(caps[name], 0))
    return pages, name if pages == caps[name] else BUDGET


def _refuse_few_slots(state: StateDemand, slots: int, available: int) -> None:
    if slots >= state.cost.per_request:
        return
    asked = "" if state.wanted is None else f" ({state.wanted:,} slots are asked for)"
    text = (
        f"{max(0, available):,} bytes are available, and the state pool has room for"
        f" {slots:,} slots of {state.cost.slot_bytes:,} bytes{asked}; one request takes"
        f" {state.cost.per_request}"
    )
    if state.wanted is not None and state.wanted < state.cost.per_request:
        raise ConfigError(f"{text}: ask for {state.cost.per_request} slots or more")
    raise BudgetTooSmall(text)


def _refuse_few_pages(demand: Demand, num_pages: int, budget: int, why: str) -> None:
    least = -(-TOKENS_EACH // demand.page_size)
    if num_pages < least:
        text = (
            f"{max(0, budget):,} bytes are left for pages, and one request takes {least} of"
            f" {demand.pools[0].page_bytes:,} bytes beside the reserved one"
        )
        raise _refusal(demand, text, why)
    pages = demand.usable_pages(num_pages)
    for pool in demand.pools:
        held = pages[pool.name] * demand.page_size
        if pool.window is None or pages[pool.name] >= admitting_pages(
            pool.window, demand.page_size
        ):
            continue
        text = (
            f"the pool of {pool.name!r} comes out at {held:,} tokens, and to admit one request it"
            f" has more than window + page = {pool.window:,} + {demand.page_size:,}"
        )
        if pool.name in demand.window_len:
            raise ConfigError(f"{text}: plan for more requests, or split by ratio")
        raise _refusal(demand, text, why)


def _refusal(demand: Demand, text: str, why: str) -> ConfigError:
    if why in demand.token_limits:
        limit, enough = demand.token_limits[why], demand.least_pages * demand.page_size
        return ConfigError(
            f"{text}: raise the limit of {limit:,} tokens ({why}) to {enough:,} or more"
        )
    return BudgetTooSmall(text)
