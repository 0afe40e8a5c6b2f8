"""What holds of every plan: its bytes, its monotony, its refusals, and the agreement of ranks."""

import attrs
import hypothesis.strategies as st
import pytest
from geometries import any_dtype_caches, fp8_caches, geometries
from hypothesis import HealthCheck, assume, given, settings
from plans import DEVICE, configurator

from kvlife.errors import BudgetTooSmall, ConfigError
from kvlife.sizing import ByRatio, ByRequests, Draft, Parallel, StateSizing
from kvlife.sizing.ranks import plan_pipeline

# A padding of less than this lies between two tensors of a pool.
SECTION = 256
WIDTHS = ("bf16", "mxfp8", "fp8_e4m3", "nvfp4")
# Every compression and every dcp of the random models divides it.
PAGE_SIZE = 256

drafts = st.none() | st.builds(
    Draft,
    algorithm=st.sampled_from(["EAGLE", "STANDALONE"]),
    num_layers=st.integers(1, 3),
    num_draft_tokens=st.integers(1, 8),
    topk=st.integers(1, 4),
)
sizings = st.builds(ByRatio, ratio=st.sampled_from([0.1, 0.8, 1.0, 2.5])) | st.builds(
    ByRequests, eviction_interval=st.integers(1, 8), chunk_len=st.sampled_from([16, 8192])
)
states = st.builds(
    StateSizing,
    ratio=st.sampled_from([0.1, 0.9, 4.0]),
    tracking=st.sampled_from(["off", "on"]),
    decode_locks=st.booleans(),
)
budgets = st.integers(24, 40).flatmap(lambda power: st.integers(1 << power, 2 << power))


@st.composite
def options(draw):
    """Options that any model may be planned with."""
    sizing = draw(sizings)
    by_requests = isinstance(sizing, ByRequests)
    requests = st.integers(4, 64) if by_requests else st.none() | st.integers(4, 5_000)
    return {
        "max_running_requests": draw(requests),
        "window_sizing": sizing,
        "state_sizing": draw(states),
        "draft": draw(drafts),
        "draft_steps": draw(st.integers(1, 5)),
        "prefix_cache": draw(st.booleans()),
        "overlap": draw(st.booleans()),
        "unified": False,
        "page_size": PAGE_SIZE,
        "max_total_tokens": draw(st.none() | st.integers(1, 1 << 24)),
        "parallel": Parallel(
            tp=draw(st.sampled_from([2, 4])), attention_dp=draw(st.sampled_from([1, 2]))
        ),
    }


def plan_or_none(geometry, available, dtype="bf16", **found):
    """A plan, or None where there is none: which is what a pool of nothing would be."""
    try:
        return configurator(geometry, available, dtype, **found).configure(DEVICE)
    except BudgetTooSmall:
        return None


def many(number):
    """So many examples, without a remark on how many random models no memory could serve."""
    quiet = [HealthCheck.filter_too_much, HealthCheck.too_slow]
    return settings(max_examples=number, suppress_health_check=quiet)


def plannable(geometry, found, dtype="bf16"):
    """Leave out what no memory could serve."""
    try:
        configurator(geometry, 1 << 47, dtype, **found).configure(DEVICE)
    except ConfigError:
        assume(False)


def paged_bytes(plan, main_pages):
    """At least the bytes of the pools where the main one has so many usable pages, by hand."""
    total = SECTION * len(plan.buffers)
    for number, part in enumerate(plan.pools):
        usable = part.num_pages - 1
        if number == 0:
            usable = main_pages
        elif part.why.startswith("its ratio"):
            ratio = dict(plan.figures["coefficient_bytes"].inputs)["window_ratio"]
            usable = int(round(main_pages * ratio * 10) // 10)
        total += (usable + 1) * part.pool.page_bytes
    return total


@pytest.mark.soak
@many(40)
@given(geometry=geometries(fp8_caches), available=budgets, found=options())
def test_the_bytes_are_within_the_budget(geometry, available, found):
    """What the buffers take is what is planned, and never more than what is available."""
    plannable(geometry, found)
    plan = plan_or_none(geometry, available, **found)
    assume(plan is not None)
    assert sum(buffer.num_bytes for buffer in plan.buffers) == plan.planned_bytes <= available
    assert plan.left_over_bytes == available - plan.planned_bytes
    for part in plan.pools:
        assert part.num_tokens == (part.num_pages - 1) * PAGE_SIZE > 0
    assert plan.pool_config.num_pages == plan.pools[0].num_pages


@pytest.mark.soak
@many(40)
@given(geometry=geometries(fp8_caches), available=budgets, found=options())
def test_one_more_page_or_slot_would_not_fit(geometry, available, found):
    """Where memory is what binds, a page more passes the pages' budget, a slot more the states'."""
    plannable(geometry, found)
    plan = plan_or_none(geometry, available, **found)
    assume(plan is not None)
    if plan.why("max_total_num_tokens").bound == "the budget":
        rows = plan.why("rows_bytes").value if plan.rows_pool_size is not None else 0
        more = paged_bytes(plan, plan.pools[0].num_pages) + rows
        # A page more may bring a request more, and with it a state of its own.
        if plan.rows_pool_size is not None:
            requests = PAGE_SIZE if found["max_running_requests"] is None else 0
            more += requests * rows // (plan.rows_pool_size + 1)
        assert more > plan.why("paged_budget_bytes").value
    state = plan.state
    if state is not None and state.why == "the state share of the budget":
        slots = state.num_slots + 1
        running = found["max_running_requests"]
        running = 4_096 if running is None else running // found["parallel"].attention_dp
        drafting = min(running, slots // state.slots_per_request) + 1
        spent = (slots + 1 + drafting * state.num_drafts) * state.slot_bytes
        assert spent > plan.why("state_share_bytes").value


@pytest.mark.soak
@many(40)
@given(
    geometry=geometries(fp8_caches),
    available=budgets,
    more=st.integers(0, 1 << 34) | st.integers(0, 1 << 20),
    found=options(),
)
def test_more_memory_never_plans_less(geometry, available, more, found):
    """Tokens, requests, slots and window tokens; and what could be planned still can."""
    plannable(geometry, found)
    less = plan_or_none(geometry, available, **found)
    assume(less is not None)
    plan = plan_or_none(geometry, available + more, **found)
    assert plan.max_total_num_tokens >= less.max_total_num_tokens
    assert plan.max_running_requests >= less.max_running_requests
    assert (plan.state_pool_size or 0) >= (less.state_pool_size or 0)
    assert (plan.swa_max_total_num_tokens or 0) >= (less.swa_max_total_num_tokens or 0)


@pytest.mark.soak
@many(40)
@given(geometry=geometries(any_dtype_caches), available=budgets, found=options())
def test_a_smaller_dtype_never_plans_less(geometry, available, found):
    """From bf16 over mxfp8 and fp8 to nvfp4, there are as many tokens or more."""
    for dtype in WIDTHS:
        plannable(geometry, found, dtype)
    tokens = []
    for dtype in WIDTHS:
        plan = plan_or_none(geometry, available, dtype, **found)
        tokens.append(0 if plan is None else plan.max_total_num_tokens)
    assert tokens == sorted(tokens)


@pytest.mark.soak
@many(40)
@given(geometry=geometries(fp8_caches), found=options())
def test_a_refusal_says_the_least_memory_that_would_do(geometry, found):
    """So many bytes are planned, and one less is refused with the same number."""
    plannable(geometry, found)
    with pytest.raises(BudgetTooSmall, match="The least that would do is") as refused:
        configurator(geometry, 0, **found).configure(DEVICE)
    least = refused.value.least_bytes
    assert configurator(geometry, least, **found).configure(DEVICE).max_running_requests >= 1
    with pytest.raises(BudgetTooSmall) as again:
        configurator(geometry, least - 1, **found).configure(DEVICE)
    assert again.value.least_bytes == least


@pytest.mark.soak
@many(40)
@given(
    geometry=geometries(fp8_caches),
    available=budgets,
    found=options(),
    pp=st.integers(2, 4),
)
def test_every_rank_plans_the_least_of_the_ranks(geometry, available, found, pp):
    """Tokens, slots and requests are those of the tightest rank, and each rank's bytes fit."""
    found["parallel"] = attrs.evolve(found["parallel"], pp=pp)
    ranks = [attrs.evolve(found["parallel"], pp_rank=rank) for rank in range(pp)]
    for parallel in ranks:
        plannable(geometry, {**found, "parallel": parallel})
    own = [plan_or_none(geometry, available, **{**found, "parallel": each}) for each in ranks]
    asked = configurator(geometry, available, **found)
    if any(plan is None for plan in own):
        with pytest.raises(BudgetTooSmall):
            plan_pipeline(asked, DEVICE)
        return
    plans = plan_pipeline(asked, DEVICE)
    slots = {plan.state_pool_size for plan in plans}
    assert slots == {min((plan.state_pool_size for plan in own), key=lambda num: num or 0)}
    assert len({plan.max_total_num_tokens for plan in plans}) == 1
    assert len({plan.max_running_requests for plan in plans}) == 1
    assert len({plan.pool_config for plan in plans}) == 1
    # Fewer slots on a rank may leave more to its pages than it had by itself.
    assert plans[0].max_total_num_tokens >= min(plan.max_total_num_tokens for plan in own)
    assert all(plan.planned_bytes <= available for plan in plans)
