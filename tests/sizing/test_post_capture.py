"""The smaller plan after graph capture, and the calls by which an engine reaches it."""

import model_configs as models
import pytest
from plans import DEVICE, GIB, configurator

from kvlife import CommandRefused, KvEngine
from kvlife.errors import BudgetTooSmall, ConfigError
from kvlife.sizing import (
    FullAttention,
    ModelGeometry,
    Parallel,
    ResizeCall,
    SlidingWindow,
    compute_post_capture_kv_resize,
)

PAGE = 16 * 36_864


def resized(asked, plan, free, **options):
    """The plan after capture, where so many bytes are available beside the pools."""
    return compute_post_capture_kv_resize(
        asked,
        plan,
        free_bytes=free + DEVICE // 2,
        pre_model_load_memory=DEVICE,
        **options,
    )


def test_what_graphs_took_is_taken_from_the_pools():
    """100 MiB less than nothing left: 178 pages of 589,824 bytes fewer, 1,642 in all."""
    asked = configurator(models.GPT_OSS_120B, GIB)
    plan = asked.configure(DEVICE)
    after = resized(asked, plan, free=plan.left_over_bytes - (100 << 20))
    # n + floor(0.8 n) <= 1,640 beside the reserved pages: 911 and 728.
    assert (GIB - (100 << 20)) // PAGE == 1_642
    assert after.full_max_total_num_tokens == after.max_total_num_tokens == 911 * 16
    assert after.swa_max_total_num_tokens == 728 * 16
    assert after.calls == (ResizeCall("full", 912), ResizeCall("swa", 729))
    assert after.result.planned_bytes == (912 + 729) * PAGE


def test_pools_never_grow_after_capture():
    """However much is free: rows, tables and graphs are made for what was planned."""
    asked = configurator(models.GPT_OSS_120B, GIB)
    plan = asked.configure(DEVICE)
    after = resized(asked, plan, free=10 * GIB)
    assert (after.max_total_num_tokens, after.calls) == (plan.max_total_num_tokens, ())
    assert after.capped_max_running_requests is None
    assert after.result.pool_config == plan.pool_config


def test_pools_without_memory_yet():
    """Where nothing is backed, what is free is all there is."""
    asked = configurator(models.LLAMA_31_8B, GIB)
    plan = asked.configure(DEVICE)
    after = resized(asked, plan, free=GIB // 2, backed_bytes=0)
    assert after.max_total_num_tokens == (256 - 1) * 16
    with pytest.raises(ConfigError, match="at most all of it"):
        resized(asked, plan, free=0, backed_bytes=plan.planned_bytes + 1)


def test_what_is_kept_for_steps_without_a_graph():
    """The larger of the two is kept: what the fraction leaves, or what is asked for."""
    asked = configurator(models.LLAMA_31_8B, GIB)
    plan = asked.configure(DEVICE)
    half = DEVICE // 2
    same = resized(asked, plan, free=0, least_kept_bytes=half)
    assert same.calls == ()
    after = resized(asked, plan, free=0, least_kept_bytes=half + GIB // 2)
    assert after.max_total_num_tokens == (256 - 1) * 16


def test_requests_are_capped_by_the_smaller_pool():
    """100 requests, and 16 pages of 16 left: at most 128 tokens // 2."""
    asked = configurator(models.LLAMA_31_8B, GIB, max_running_requests=100)
    plan = asked.configure(DEVICE)
    assert plan.max_running_requests == 100
    free = 9 * 2_097_152 - plan.planned_bytes
    after = resized(asked, plan, free=free)
    assert after.max_total_num_tokens == 8 * 16
    assert after.capped_max_running_requests == 64


def test_requests_of_one_copy_of_the_attention_stay_its_own():
    """The plan's number is one rank's, and is not divided again."""
    parallel = Parallel(tp=4, attention_dp=4)
    asked = configurator(models.LLAMA_31_8B, GIB, max_running_requests=400, parallel=parallel)
    plan = asked.configure(DEVICE)
    assert plan.max_running_requests == 100
    after = resized(asked, plan, free=-GIB // 4)
    assert after.capped_max_running_requests is None
    assert after.result.max_running_requests == 100


def test_state_slots_stay():
    """They are made before capture: only pages go."""
    asked = configurator(models.QWEN3_NEXT_80B, 8 * GIB)
    plan = asked.configure(DEVICE)
    after = resized(asked, plan, free=plan.left_over_bytes - GIB)
    assert after.result.state_pool_size == plan.state_pool_size == 51
    assert after.result.state.num_bytes == plan.state.num_bytes
    states = 52 * 77_266_944
    assert after.max_total_num_tokens == ((7 * GIB - states) // 393_216 - 1) * 16


def test_states_of_rows_stay():
    """So do those that each request has one of."""
    asked = configurator(models.DEEPSEEK_V4, 40 * GIB, page_size=128)
    plan = asked.configure(DEVICE)
    after = resized(asked, plan, free=plan.left_over_bytes - GIB)
    assert after.result.rows_pool_size == plan.rows_pool_size == 2_048
    assert after.max_total_num_tokens < plan.max_total_num_tokens


def test_one_buffer_for_groups_shrinks_as_one():
    """A unified space has one call."""
    asked = configurator(models.GPT_OSS_120B, GIB, unified=True)
    plan = asked.configure(DEVICE)
    after = resized(asked, plan, free=-(100 << 20))
    assert after.calls == (ResizeCall("unified", (GIB - (100 << 20)) // PAGE),)


def test_no_plan_is_left():
    """A pool without a page is refused, with the least that would do."""
    asked = configurator(models.LLAMA_31_8B, GIB)
    plan = asked.configure(DEVICE)
    with pytest.raises(BudgetTooSmall) as refused:
        resized(asked, plan, free=-GIB)
    assert refused.value.least_bytes == 2 * 2_097_152


def test_the_engine_is_shrunk_by_the_calls():
    """Its pools have the smaller plan's pages; pages in use above them are not taken."""
    layers = [
        FullAttention(num_kv_heads=1, k_dim=64, v_dim=64),
        SlidingWindow(num_kv_heads=1, k_dim=64, v_dim=64, window=64),
    ]
    geometry = ModelGeometry(layers=layers, context_len=512)
    asked = configurator(geometry, 1 << 20)
    plan = asked.configure(DEVICE)
    after = resized(asked, plan, free=-(1 << 19))
    with KvEngine(plan.pool_config) as engine:
        after.apply(engine)
        sizes = {space.name: space.num_pages for space in engine.ledger.layout.spaces}
        assert sizes == {"full": after.calls[0].num_pages, "swa": after.calls[1].num_pages}
        assert sizes["full"] == after.result.pools[0].num_pages
    with KvEngine(plan.pool_config) as engine:
        tokens = list(range(512))
        for rid in ("r1", "r2"):
            engine.admit(rid, tokens, namespace=rid)
            engine.allocate([rid], [512])
        with pytest.raises(CommandRefused, match="cannot shrink"):
            after.apply(engine)
