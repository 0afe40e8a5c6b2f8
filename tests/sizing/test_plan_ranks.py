"""Ranks of a pipeline: what they agree on, in which order, and what each then plans."""

import attrs
import model_configs as models
import pytest
from plans import DEVICE, GIB, configurator

from kvlife.errors import BudgetTooSmall
from kvlife.sizing import Parallel
from kvlife.sizing.ranks import plan_pipeline


def test_a_callable_gives_the_least():
    """A rank with room for 8,176 tokens plans what another has room for, in whole pages."""
    asked = []

    def agree(own):
        asked.append(own)
        return 1_000

    plan = configurator(models.LLAMA_31_8B, GIB, agree=agree).configure(DEVICE)
    assert asked == [511 * 16]
    assert plan.max_total_num_tokens == 62 * 16
    assert plan.why("max_total_num_tokens").bound == "the least over the ranks"


def test_slots_are_agreed_on_before_tokens():
    """Both are asked for once, in this order; pages have what slots do not take."""
    asked = []

    def agree(own):
        asked.append(own)
        return min(own, 30) if len(asked) == 1 else own

    plan = configurator(models.QWEN3_NEXT_80B, 8 * GIB, agree=agree).configure(DEVICE)
    assert asked[0] == 51
    assert plan.state_pool_size == 30
    assert plan.max_running_requests == 10
    left = 8 * GIB - 31 * 77_266_944
    assert asked[1:] == [plan.max_total_num_tokens] == [(left // 393_216 - 1) * 16]


def test_a_rank_without_room_answers_before_it_is_refused():
    """Nobody waits for its number: it is 0."""
    asked = []

    def agree(own):
        asked.append(own)
        return own

    with pytest.raises(BudgetTooSmall):
        configurator(models.LLAMA_31_8B, 1, agree=agree).configure(DEVICE)
    assert asked == [0]


def test_stages_of_unequal_layers():
    """Gemma in 4 stages: 2, 3, 2 and 3 full layers, 14, 13, 13 and 12 windows."""
    asked = configurator(models.GEMMA_3_27B, 40 * GIB, parallel=Parallel(pp=4))
    plans = plan_pipeline(asked, DEVICE)
    page = 16 * 8_192
    layers = [(plan.pools[0].pool.page_bytes, plan.pools[1].pool.page_bytes) for plan in plans]
    assert layers == [
        (2 * page, 14 * page),
        (3 * page, 13 * page),
        (2 * page, 13 * page),
        (3 * page, 12 * page),
    ]
    own = [
        attrs.evolve(asked, parallel=Parallel(pp=4, pp_rank=rank))
        .configure(DEVICE)
        .max_total_num_tokens
        for rank in range(4)
    ]
    assert {plan.max_total_num_tokens for plan in plans} == {min(own)}
    whys = [plan.why("max_total_num_tokens").bound for plan in plans]
    assert whys[own.index(min(own))] == "the budget"


def test_a_stage_without_a_state_layer():
    """48 stages of qwen3-next hold one layer each: slots and tokens are the same on all."""
    asked = configurator(models.QWEN3_NEXT_80B, GIB, parallel=Parallel(pp=48))
    plans = plan_pipeline(asked, DEVICE)
    assert len({(plan.state_pool_size, plan.pool_config) for plan in plans}) == 1
    states = [plan.state.num_bytes for plan in plans]
    assert states.count(0) == 12
    pages = [plan.pools[0].num_bytes for plan in plans]
    assert pages.count(0) == 36
    # A stage with states alone keeps them in 9 parts of 19, one with pages alone has all of it.
    assert plans[0].state_pool_size == GIB * 9 // 19 // (49_152 + 2_097_152) - 1
    assert plans[3].max_total_num_tokens == (GIB // (16 * 2_048) - 1) * 16
