"""Plans of real models in budgets whose arithmetic is done by hand."""

from fractions import Fraction

import attrs
import model_configs as models
import pytest
from plans import GIB, configurator, planned

from kvlife import CacheGroup, KvEngine, PoolConfig
from kvlife.errors import ConfigError
from kvlife.sizing import (
    ByRatio,
    ByRequests,
    Draft,
    FullAttention,
    Heads,
    ModelGeometry,
    Parallel,
    RecurrentState,
    SlidingWindow,
    StateSizing,
)


def test_one_group_fills_the_budget():
    """4 GiB are 2,048 pages of 16 x 131,072 bytes; one is the reserved page."""
    plan = planned(models.LLAMA_31_8B, 4 * GIB)
    assert plan.max_total_num_tokens == 2_047 * 16
    assert (plan.planned_bytes, plan.left_over_bytes) == (4 * GIB, 0)
    assert (plan.full_max_total_num_tokens, plan.swa_max_total_num_tokens) == (None, None)
    assert plan.max_running_requests == 2_048
    assert plan.row_capacity == 131_072 + 2
    assert plan.pool_config == PoolConfig(
        page_size=16,
        num_pages=2_048,
        max_requests=2_048,
        max_context_len=131_074,
        groups=(CacheGroup("full", num_pages=2_048),),
    )


def test_a_byte_less_is_a_page_less():
    """A page and the rest of one are left over, or nothing is."""
    plan = planned(models.LLAMA_31_8B, 4 * GIB - 1)
    assert plan.max_total_num_tokens == 2_046 * 16
    assert plan.left_over_bytes == 16 * 131_072 - 1


def test_buffers_have_shapes_dtypes_and_bytes():
    """K and V, each 32 layers of 2,048 pages of 16 tokens of 8 heads of 128."""
    plan = planned(models.LLAMA_31_8B, 4 * GIB)
    assert [(buffer.shape, buffer.dtype, buffer.num_bytes) for buffer in plan.buffers] == [
        ((32, 2_048, 16, 8, 128), "bfloat16", 2 * GIB),
        ((32, 2_048, 16, 8, 128), "bfloat16", 2 * GIB),
    ]


def test_scales_are_buffers_too():
    """nvfp4: a byte for each two values, and one for each 16; 36,864 a token in all."""
    plan = planned(models.LLAMA_31_8B, GIB, "nvfp4")
    pages = plan.pools[0].num_pages
    assert pages == GIB // (16 * 36_864)
    halves = 32 * pages * 16 * 8 * 64
    assert sorted(buffer.num_bytes for buffer in plan.buffers) == [
        halves // 8, halves // 8, halves, halves
    ]  # fmt: skip


def test_the_window_pool_follows_by_ratio():
    """1 GiB holds 1,820 pages: 2 are reserved, 1,010 are full and floor(808.0) window pages."""
    plan = planned(models.GPT_OSS_120B, GIB)
    assert plan.full_max_total_num_tokens == plan.max_total_num_tokens == 1_010 * 16
    assert plan.swa_max_total_num_tokens == 808 * 16
    assert plan.left_over_bytes == GIB - 1_820 * 16 * 36_864
    groups = plan.pool_config.groups
    assert [(group.window, group.num_pages) for group in groups] == [(None, 1_011), (128, 809)]


def test_another_ratio():
    """A half: 1,212 full pages and 606 window pages are 1,818."""
    plan = planned(models.GPT_OSS_120B, GIB, window_sizing=ByRatio(ratio=0.5))
    assert (plan.full_max_total_num_tokens, plan.swa_max_total_num_tokens) == (19_392, 9_696)


def test_the_window_pool_of_what_requests_hold():
    """128 + 1 + 1 + 15 in pages are 160 tokens, for 64 requests, and two chunks: 1,664 pages."""
    plan = planned(
        models.GPT_OSS_120B,
        GIB,
        window_sizing=ByRequests(chunk_len=8_192),
        max_running_requests=64,
        prefix_cache=False,
    )
    assert plan.swa_max_total_num_tokens == 64 * 160 + 2 * 8_192 == 1_664 * 16
    assert plan.full_max_total_num_tokens == (1_820 - 1_665 - 1) * 16
    assert plan.max_running_requests == 64


def test_slots_take_their_share():
    """8 GiB x 9 / 19 hold 52 slots, one for padding; the pages have the other 10 / 19."""
    plan = planned(models.QWEN3_NEXT_80B, 8 * GIB)
    assert plan.state_pool_size == 51
    assert plan.max_running_requests == 51 // 3
    share = 4_068_916_385
    assert plan.why("state_share_bytes").value == share
    assert plan.max_total_num_tokens == ((8 * GIB - share) // 393_216 - 1) * 16 == 183_936
    assert plan.planned_bytes == 52 * 77_266_944 + 11_497 * 393_216


def test_drafts_keep_states_of_their_own():
    """4 drafts: 21 slots and (20 // 3 + 1) x 4 states are 49 of 52; with 3 requests 36 + 16."""
    draft = Draft(algorithm="EAGLE", num_layers=1, num_draft_tokens=4)
    plan = planned(models.QWEN3_NEXT_80B, 8 * GIB, draft=draft, draft_steps=3)
    assert (plan.state_pool_size, plan.state.draft_rows) == (20, 7)
    few = planned(models.QWEN3_NEXT_80B, 8 * GIB, draft=draft, max_running_requests=3)
    assert (few.state_pool_size, few.state.draft_rows, few.max_running_requests) == (35, 4, 3)
    drafts = [buffer for buffer in few.buffers if ".draft." in buffer.name]
    assert sum(buffer.num_bytes for buffer in drafts) == 4 * 4 * 77_266_944
    assert {buffer.shape[:3] for buffer in drafts} == {(36, 4, 4)}


def test_without_a_prefix_cache_no_more_slots_than_requests():
    """8 requests have 8 slots, and what the share leaves goes to pages."""
    options = {"prefix_cache": False, "max_running_requests": 8}
    plan = planned(models.QWEN3_NEXT_80B, 8 * GIB, **options)
    assert (plan.state_pool_size, plan.max_running_requests) == (8, 8)
    assert plan.max_total_num_tokens == ((8 * GIB - 9 * 77_266_944) // 393_216 - 1) * 16


def test_c74_rows_are_lowered_to_what_slots_serve():
    """C74: 27 slots of 3 a request serve 9 rows, as many as asked; 9 slots would serve 3."""
    options = {"max_running_requests": 9}
    plan = planned(
        models.QWEN3_NEXT_80B, 8 * GIB, state_sizing=StateSizing(num_slots=27), **options
    )
    assert (plan.state_pool_size, plan.max_running_requests) == (27, 9)
    few = planned(models.QWEN3_NEXT_80B, 8 * GIB, state_sizing=StateSizing(num_slots=9), **options)
    assert (few.state_pool_size, few.max_running_requests) == (9, 3)
    assert any("9 requests asked for" in note and "3 planned" in note for note in few.notes)
    for found in (plan, few):
        assert (
            found.pool_config.max_requests * found.state.slots_per_request <= found.state.num_slots
        )


def test_c74_a_set_number_of_slots_is_what_is_made():
    """C74, the other way: nothing is added to 750 slots for 250 requests."""
    sizing = StateSizing(num_slots=750)
    plan = planned(models.QWEN3_NEXT_80B, 80 * GIB, state_sizing=sizing, max_running_requests=250)
    assert (plan.state_pool_size, plan.max_running_requests) == (750, 250)
    states = [buffer for buffer in plan.buffers if ".state." in buffer.name]
    assert {buffer.shape[:2] for buffer in states} == {(36, 751)}


def test_slots_are_those_of_all_copies_of_the_attention():
    """100 slots over 4 copies of the attention are 25 each."""
    plan = planned(
        models.QWEN3_NEXT_80B,
        8 * GIB,
        parallel=Parallel(tp=4, attention_dp=4),
        state_sizing=StateSizing(num_slots=100),
    )
    assert plan.state_pool_size == 25


def test_c72_each_table_is_as_long_as_what_indexes_it():
    """C72: 8 rows and 4 slots: the table from rows to slots has 9 entries, and none is a slot's."""
    plan = planned(
        models.QWEN3_NEXT_80B,
        8 * GIB,
        max_running_requests=8,
        state_sizing=StateSizing(num_slots=24),
    )
    spaces = dict(plan.index_spaces)
    assert spaces["rows"] == 8 + 1
    slots = next(table for table in plan.tables if table.name == "state_slot")
    assert slots.shape == (9,)
    for table in plan.tables:
        assert table.shape[0] == spaces[table.space]
    for table in plan.tables:
        if table.name.startswith("page_table"):
            assert table.shape == (9, -(-plan.row_capacity // 16))


def test_compressed_entries_lie_in_the_pages_of_the_full_pool():
    """DeepSeek-V4 in 1 GiB with 8 requests: 9 compressor states, 179 full and 143 window pages."""
    plan = planned(models.DEEPSEEK_V4, GIB, page_size=128, max_running_requests=8)
    assert plan.rows_pool_size == 8
    assert plan.full_max_total_num_tokens == 179 * 128
    assert plan.swa_max_total_num_tokens == 143 * 128
    assert [(part.ratio, part.num_entries) for part in plan.compressed] == [
        (4, 179 * 32),
        (128, 179),
    ]
    full, swa, states = 180 * 763_392, 144 * 5_636_096, 9 * 13_697_024
    assert plan.planned_bytes == full + swa + states


def test_pages_hold_whole_compressed_entries():
    """16 tokens are no multiple of 128, and the message says which page sizes are."""
    with pytest.raises(ConfigError, match=r"pages of 16 tokens .* take a multiple of 128"):
        planned(models.DEEPSEEK_V4, GIB, page_size=16)


def test_the_token_limit():
    """1,000 tokens are 62 pages; the plan takes no more, and says why."""
    plan = planned(models.LLAMA_31_8B, 4 * GIB, max_total_tokens=1_000)
    assert plan.max_total_num_tokens == 62 * 16
    assert plan.why("max_total_num_tokens").bound == "the user's token limit"
    assert plan.planned_bytes == 63 * 16 * 131_072


def test_reservations_are_left_out():
    """What is reserved is available to no pool."""
    assert planned(models.LLAMA_31_8B, GIB, reservations={"graphs": GIB}) == attrs.evolve(
        planned(models.LLAMA_31_8B, GIB),
        figures=planned(models.LLAMA_31_8B, GIB, reservations={"graphs": GIB}).figures,
    )


def test_a_tree_of_drafts_makes_rows_longer():
    """4 branches of 2 pages of 64, doubled, beyond the context."""
    draft = Draft(algorithm="EAGLE", num_layers=1, num_draft_tokens=8, topk=4)
    plan = planned(models.LLAMA_31_8B, 4 * GIB, draft=draft, draft_steps=5, page_size=64)
    assert plan.row_capacity == plan.pool_config.max_context_len == 131_072 + 1_024


def test_no_pool_at_all():
    """A prefill-only server of plain attention: no buffer, and as many slots as would have been."""
    plan = planned(models.LLAMA_31_8B, 4 * GIB, prefill_only=True)
    assert (plan.buffers, plan.planned_bytes) == ((), 0)
    assert plan.max_total_num_tokens == 2_047 * 16


@pytest.mark.parametrize(
    ("config", "odd"),
    [
        (models.GPT_OSS_120B, "SlidingWindow"),
        (models.DEEPSEEK_V3, "Latent"),
        (models.QWEN3_NEXT_80B, "RecurrentState"),
    ],
)
def test_no_pool_at_all_is_for_plain_attention(config, odd):
    """Other kinds of caches are named and refused."""
    with pytest.raises(ConfigError, match=f"plain attention only, and this model has {odd}"):
        planned(config, 4 * GIB, prefill_only=True)


def test_one_buffer_for_groups_whose_pages_are_alike():
    """gpt-oss: one space of 1,820 pages for both groups, in whole units of 4,096 bytes."""
    plan = planned(models.GPT_OSS_120B, GIB + 5_000, unified=True)
    (buffer,) = plan.buffers
    assert (buffer.shape, buffer.dtype) == ((GIB + 4_096,), "uint8")
    assert plan.left_over_bytes == 904
    groups = plan.pool_config.groups
    assert [(group.space, group.num_pages) for group in groups] == [("unified", 1_820)] * 2


def test_one_buffer_for_pages_and_slots():
    """Pages and slots of different bytes keep their shares of it."""
    plan = planned(models.QWEN3_NEXT_80B, 8 * GIB, unified=True)
    assert [buffer.num_bytes for buffer in plan.buffers] == [8 * GIB]
    assert plan.state_pool_size == 51
    with pytest.raises(ConfigError, match="this model has one"):
        planned(models.LLAMA_31_8B, 4 * GIB, unified=True)


def test_the_host_holds_more_than_the_device():
    """HiSparse: twice the tokens in the logical space, which is what the engine pages."""
    plan = planned(models.DEEPSEEK_V32, GIB, host_to_device_ratio=2)
    assert plan.logical_max_total_num_tokens == 2 * plan.max_total_num_tokens
    assert plan.pool_config.num_pages == 2 * (plan.pools[0].num_pages - 1) + 1
    # An index key of 132 bytes for each token of the host.
    assert plan.pools[0].pool.page_bytes == 16 * 61 * (1_152 + 2 * 132)


def test_a_model_of_windows_alone():
    """There is no full pool: tokens are those of the window pool."""
    layers = [SlidingWindow(num_kv_heads=1, k_dim=64, v_dim=64, window=64)] * 2
    plan = planned(ModelGeometry(layers=layers, context_len=1_024), 64 * 16 * 512)
    assert (plan.full_max_total_num_tokens, plan.swa_max_total_num_tokens) == (0, 63 * 16)
    assert plan.max_total_num_tokens == 63 * 16


def test_two_windows_are_two_pools():
    """Each has its pages by ratio; the number of window tokens is the least."""
    layers = [
        FullAttention(num_kv_heads=1, k_dim=64, v_dim=64),
        SlidingWindow(num_kv_heads=1, k_dim=64, v_dim=64, window=64),
        SlidingWindow(num_kv_heads=1, k_dim=64, v_dim=64, window=256),
    ]
    geometry = ModelGeometry(layers=layers, context_len=1_024)
    plan = planned(geometry, (3 + 100 + 2 * 80) * 16 * 256)
    assert [part.num_tokens for part in plan.pools] == [1_600, 1_280, 1_280]
    assert [part.pool.window for part in plan.pools] == [None, 256, 64]
    assert plan.swa_max_total_num_tokens == 1_280


def test_the_engine_takes_the_plan():
    """An engine of the plan's configuration admits a request of the whole context."""
    layers = [FullAttention(num_kv_heads=1, k_dim=64, v_dim=64)]
    plan = planned(ModelGeometry(layers=layers, context_len=512), 65 * 16 * 256)
    with KvEngine(plan.pool_config) as engine:
        engine.admit("r1", list(range(512)))
        engine.allocate(["r1"], [512])
        assert engine.num_free() == plan.pools[0].num_pages - 1 - 32


@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize("size", [5, 16, 50])
def test_a_window_pool_of_what_requests_hold_never_runs_out(interval, size):
    """All requests decode past their window, evicting every few steps, and no page is missing."""
    layers = [
        FullAttention(num_kv_heads=1, k_dim=64, v_dim=64),
        SlidingWindow(num_kv_heads=1, k_dim=64, v_dim=64, window=size),
    ]
    plan = planned(
        ModelGeometry(layers=layers, context_len=256),
        1 << 24,
        window_sizing=ByRequests(eviction_interval=interval, chunk_len=64),
        max_running_requests=32,
        prefix_cache=False,
        overlap=False,
    )
    rids = [f"r{number}" for number in range(32)]
    with KvEngine(plan.pool_config) as engine:
        for rid in rids:
            engine.admit(rid, list(range(64)), namespace=rid)
            engine.allocate([rid], [64])
            engine.commit([rid], [64])
            engine.evict_window(engine.batch([rid]))
        batch = engine.batch(rids)
        for step in range(150):
            engine.decode(batch)
            engine.commit(batch)
            if step % interval == 0:
                engine.evict_window(batch)


def test_the_same_options_give_the_same_plan():
    """A plan is a value: nothing of the machine or the time is in it."""
    asked = configurator(models.QWEN3_NEXT_80B, 8 * GIB)
    first, second = asked.configure(1 << 50), asked.configure(1 << 50)
    assert first == second
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        first.max_total_num_tokens = 0


def plain_values(value):
    """What a record is made of, down to what has no parts."""
    if attrs.has(type(value)):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(value, attrs.fields(type(value))[0].name, None)
        value = [getattr(value, field.name) for field in attrs.fields(type(value))]
    if isinstance(value, list | tuple):
        for part in value:
            yield from plain_values(part)
    else:
        yield value


@pytest.mark.parametrize("config", [models.QWEN3_NEXT_80B, models.GPT_OSS_120B])
def test_a_plan_is_made_of_plain_values(config):
    """Frozen records, tuples, numbers and names: no tensor, no dtype of torch, no callable."""
    plan = planned(config, 8 * GIB)
    kinds = {type(value) for value in plain_values(plan)}
    assert kinds <= {int, float, str, bool, type(None), Fraction}
    assert hash(plan) == hash(planned(config, 8 * GIB))


def test_a_model_of_states_alone():
    """Pages take no bytes, and there are as many as the rows of all requests can use."""
    layers = [RecurrentState(state=Heads(num=1, dim=256))] * 2
    geometry = ModelGeometry(layers=layers, context_len=1_022)
    # 2,048 bytes a slot, and 9 parts in 19 of 38,000 bytes are 18,000: 8 slots, one for padding.
    plan = planned(geometry, 38_000)
    assert (plan.state_pool_size, plan.max_running_requests) == (7, 2)
    assert plan.row_capacity == 1_024
    assert plan.max_total_num_tokens == 2 * 1_024
    assert plan.planned_bytes == 8 * 2_048


def test_more_memory_than_an_engine_counts():
    """2^26 pages are the most, one of them reserved; of pages of 256, 2^31 slots."""
    layers = [FullAttention(num_kv_heads=1, k_dim=32, v_dim=32)]
    geometry = ModelGeometry(layers=layers, context_len=1_024)
    plan = planned(geometry, 1 << 48)
    assert plan.pool_config.num_pages == 1 << 26
    assert plan.why("max_total_num_tokens").bound == "the most that an engine counts"
    assert planned(geometry, 1 << 48, page_size=256).pool_config.num_pages == (1 << 23) - 1
    beside = attrs.evolve(
        geometry, layers=[*geometry.layers, RecurrentState(state=Heads(num=1, dim=256))]
    )
    assert planned(beside, 1 << 48, max_running_requests=4).pool_config.num_pages == 1 << 26
