"""What cannot be planned is refused: with what was asked, what is the case, what would work."""

import math
from fractions import Fraction

import model_configs as models
import pytest
from plans import DEVICE, GIB, configurator, planned

from kvlife.errors import BudgetTooSmall, ConfigError
from kvlife.sizing import (
    ByRatio,
    ByRequests,
    Draft,
    FullAttention,
    KVCacheConfigurator,
    ModelGeometry,
    SlidingWindow,
    StateSizing,
    configure_kv_cache_dtype,
    parse_bytes,
    size_text,
)

LLAMA = ModelGeometry.from_config(models.LLAMA_31_8B)
BF16 = configure_kv_cache_dtype("bf16", "bfloat16")


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("80GiB", 80 << 30),
        ("80GB", 80 * 10**9),
        ("1.5 MiB", 3 << 19),
        ("0.1kB", 100),
        ("7B", 7),
        (" 2TiB ", 2 << 40),
    ],
)
def test_a_size_with_its_unit(text, num_bytes):
    """Powers of two and powers of ten are told apart; a fraction of a byte is none."""
    assert parse_bytes("--free", text) == num_bytes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("80", "a size needs its unit; the units are B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"),
        ("80G", "'G' is no unit, write GB or GiB;"),
        ("80k", "'k' is no unit, write kB or KiB;"),
        ("80gb", "'gb' is no unit, write GB;"),
        ("80gib", "'gib' is no unit, write GiB"),
        ("80 gigs", "'gigs' is no unit"),
        ("GiB", "is no size: write 80GiB"),
        ("-1GiB", "is no size"),
        ("1e3GiB", "is no size"),
        ("nan", "is no size"),
        ("", "is no size"),
        ("٣GiB", "is no size"),
        ("9" * 200 + "GiB", "is no size"),
        ("99999999TiB", "no device has as much"),
    ],
)
def test_what_is_no_size(text, said):
    """The message has the units, and the one that was meant where it can be known."""
    with pytest.raises(ConfigError) as refused:
        parse_bytes("--free", text)
    assert said in str(refused.value)
    assert "--free" in str(refused.value)


def test_a_size_is_shown_in_both_units():
    """So that none is taken for the other."""
    assert size_text(80 << 30) == "80.00 GiB (85.90 GB)"
    assert size_text(0) == "0.00 KiB (0.00 kB)"
    assert size_text(1 << 20) == "1.00 MiB (1.05 MB)"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("page_size", 0),
        ("page_size", -16),
        ("page_size", 16.0),
        ("context_len", 0),
        ("max_total_tokens", -1),
        ("max_total_tokens", (1 << 62) + 1),
        ("max_running_requests", 0),
        ("max_running_requests", True),
        ("host_to_device_ratio", 0),
        ("draft_steps", 0),
    ],
)
def test_sizes_are_whole_and_above_0(name, value):
    """The field is named, with what it was given."""
    with pytest.raises(ConfigError, match=f"{name} must be .*{value!r}"):
        planned(LLAMA, GIB, **{name: value})


@pytest.mark.parametrize("free", [-1, 1.5, None])
def test_free_memory_is_a_number_of_bytes(free):
    """0 bytes are a number; less is none."""
    with pytest.raises(ConfigError, match="free_bytes must be a whole number of at least 0"):
        KVCacheConfigurator(geometry=LLAMA, dtype=BF16, free_bytes=free)


@pytest.mark.parametrize("before", [0, -1, 2.5])
def test_memory_before_the_weights_is_a_number_of_bytes(before):
    """It is what the fraction is of."""
    with pytest.raises(ConfigError, match="pre_model_load_memory must be a whole number"):
        KVCacheConfigurator(geometry=LLAMA, dtype=BF16, free_bytes=0).configure(before)


def test_more_memory_after_the_weights_than_before():
    """The two are not of one device."""
    with pytest.raises(ConfigError, match=r"2 bytes are free after .* and 1 were before"):
        KVCacheConfigurator(geometry=LLAMA, dtype=BF16, free_bytes=2).configure(1)


@pytest.mark.parametrize("fraction", [0, 1, 1.5, -0.1, math.nan])
def test_a_fraction_outside_its_range(fraction):
    """Neither all of the memory nor none."""
    with pytest.raises(ConfigError, match="mem_fraction must be between 0 and 1"):
        KVCacheConfigurator(geometry=LLAMA, dtype=BF16, free_bytes=1, mem_fraction=fraction)


@pytest.mark.parametrize("make", [ByRatio, StateSizing])
@pytest.mark.parametrize("ratio", [0, -1, math.nan, math.inf, "much"])
def test_a_ratio_above_0(make, ratio):
    """Nothing for windows or states is no ratio."""
    with pytest.raises(ConfigError, match="must be a number above 0"):
        make(ratio=ratio)


def test_a_negative_reservation():
    """It would be memory that is not there."""
    with pytest.raises(ConfigError, match="the reservation 'graphs' must be a whole number"):
        planned(LLAMA, GIB, reservations={"graphs": -1})


def test_memory_that_holds_no_page():
    """A token, and the reserved page: 2 pages of 2,097,152 bytes are the least."""
    with pytest.raises(BudgetTooSmall) as refused:
        planned(LLAMA, 2 * 2_097_152 - 1)
    assert refused.value.least_bytes == 2 * 2_097_152
    assert "4,194,303 bytes are left for pages, and one request takes 1" in str(refused.value)
    assert "The least that would do is 4,194,304 bytes available" in str(refused.value)
    assert planned(LLAMA, 2 * 2_097_152).max_total_num_tokens == 16


def test_pages_of_one_token_leave_room_for_one_request():
    """A request has two tokens at least, so there are two pages of one beside the reserved one."""
    with pytest.raises(BudgetTooSmall) as refused:
        planned(LLAMA, 0, page_size=1)
    assert refused.value.least_bytes == 3 * 131_072
    assert planned(LLAMA, 3 * 131_072, page_size=1).max_running_requests == 1


def test_weights_that_take_all_memory():
    """A negative budget holds nothing; what would do is said for the device and the fraction."""
    asked = KVCacheConfigurator(
        geometry=LLAMA, dtype=BF16, free_bytes=1 * GIB, mem_fraction=Fraction(1, 2)
    )
    with pytest.raises(BudgetTooSmall) as refused:
        asked.configure(16 * GIB)
    assert refused.value.least_bytes == 4_194_304
    free = 8 * GIB + 4_194_304
    assert f"{free:,} bytes (8.00 GiB (8.59 GB)) free at this mem_fraction" in str(refused.value)
    # 15 of 16 GiB are taken, and 4 MiB more would be: 0.93775 of all.
    assert "or a mem_fraction of 0.938" in str(refused.value)
    raised = KVCacheConfigurator(geometry=LLAMA, dtype=BF16, free_bytes=1 * GIB, mem_fraction=0.938)
    assert raised.configure(16 * GIB).max_total_num_tokens >= 16


def test_a_device_that_is_too_small_for_any_fraction():
    """Where the memory itself is missing, the message has the device that would do."""
    big = FullAttention(num_kv_heads=1024, k_dim=1024, v_dim=1024)
    geometry = ModelGeometry(layers=[big] * 16, context_len=16)
    asked = KVCacheConfigurator(
        geometry=geometry, dtype=BF16, free_bytes=GIB, mem_fraction=Fraction(1, 2)
    )
    with pytest.raises(BudgetTooSmall, match="a device of") as refused:
        asked.configure(GIB)
    assert "mem_fraction of" not in str(refused.value)
    device = 2 * refused.value.least_bytes
    assert f"a device of {device:,} bytes" in str(refused.value)
    enough = KVCacheConfigurator(
        geometry=geometry, dtype=BF16, free_bytes=device, mem_fraction=Fraction(1, 2)
    )
    assert enough.configure(device).max_total_num_tokens == 16


def test_a_fraction_that_no_device_is_large_enough_for():
    """What cannot be had is not advised, however small the fraction is."""
    for fraction in ("1e-12", 1e-320):
        asked = KVCacheConfigurator(
            geometry=LLAMA, dtype=BF16, free_bytes=GIB, mem_fraction=fraction
        )
        with pytest.raises(BudgetTooSmall, match="a mem_fraction of") as refused:
            asked.configure(2 * GIB)
        assert refused.value.least_bytes == 4_194_304
        assert "a device of" not in str(refused.value)


@pytest.mark.parametrize("ratio", [1e-300, 1e300])
def test_a_plan_that_no_memory_would_do_for(ratio):
    """The window pool has no page, or more than an engine counts, whatever there is."""
    with pytest.raises(ConfigError, match="No memory would do") as refused:
        planned(models.GPT_OSS_120B, GIB, window_sizing=ByRatio(ratio=ratio))
    assert not isinstance(refused.value, BudgetTooSmall)


def test_a_window_larger_than_the_context():
    """The layer, its window and the context are named."""
    layers = [SlidingWindow(num_kv_heads=1, k_dim=64, v_dim=64, window=2_048)]
    geometry = ModelGeometry(layers=layers, context_len=4_096)
    with pytest.raises(ConfigError, match="layer 0 has a window of 2,048 tokens, and the context"):
        planned(geometry, GIB, context_len=1_024)
    assert planned(geometry, GIB, context_len=2_048).max_total_num_tokens > 0


def test_a_window_pool_too_small_for_one_request():
    """With a ratio of 0.01 the window pool is small: what it takes in memory is said."""
    with pytest.raises(BudgetTooSmall, match=r"more than window [+] page = 128 [+] 16") as refused:
        planned(models.GPT_OSS_120B, GIB // 64, window_sizing=ByRatio(ratio=0.01))
    # 10 window pages are 160 tokens, above 144; they come with 1,000 full pages.
    assert refused.value.least_bytes == (1_001 + 11) * 16 * 36_864


def test_a_token_limit_too_small_for_one_request():
    """More memory would not help, and so it is not asked for."""
    with pytest.raises(ConfigError, match="raise the limit of 128 tokens") as refused:
        planned(models.GPT_OSS_120B, GIB, max_total_tokens=128)
    assert not isinstance(refused.value, BudgetTooSmall)
    # 10 window pages, 160 tokens, are the first above 128 + 16; at 0.8 they come with 13 full ones.
    assert "to 208 or more" in str(refused.value)
    plan = planned(models.GPT_OSS_120B, GIB, max_total_tokens=208)
    assert (plan.full_max_total_num_tokens, plan.swa_max_total_num_tokens) == (208, 160)
    with pytest.raises(ConfigError, match=r"raise the limit of 15 tokens .* to 16 or more"):
        planned(LLAMA, GIB, max_total_tokens=15)


def test_a_window_by_requests_wants_their_number():
    """How many there are cannot be guessed."""
    with pytest.raises(ConfigError, match="take max_running_requests: set it, or split by ratio"):
        planned(models.GPT_OSS_120B, GIB, window_sizing=ByRequests())
    with pytest.raises(ConfigError, match="chunk_len must be a whole number"):
        ByRequests(chunk_len=0)


def test_a_window_by_requests_that_leaves_nothing():
    """4,096 requests hold more than there is: the memory that would do is said."""
    options = {"window_sizing": ByRequests(), "max_running_requests": 4_096}
    with pytest.raises(BudgetTooSmall) as refused:
        planned(models.GPT_OSS_120B, GIB, **options)
    plan = planned(models.GPT_OSS_120B, refused.value.least_bytes, **options)
    assert plan.full_max_total_num_tokens == 16


def test_too_few_slots_for_a_request():
    """Two are set, and a request takes three; or the share holds two."""
    with pytest.raises(ConfigError, match="ask for 3 slots or more") as refused:
        planned(models.QWEN3_NEXT_80B, 8 * GIB, state_sizing=StateSizing(num_slots=2))
    assert not isinstance(refused.value, BudgetTooSmall)
    with pytest.raises(BudgetTooSmall, match="room for 2 slots of 77,266,944 bytes") as refused:
        planned(models.QWEN3_NEXT_80B, GIB // 2)
    # 4 slots with the padding slot, of 9 parts in 19, rounded up.
    assert refused.value.least_bytes == -(-4 * 77_266_944 * 19 // 9)


def test_more_slots_than_memory():
    """The number that was set is named, and what it would take."""
    with pytest.raises(BudgetTooSmall, match=r"[(]1,000 slots are asked for[)]") as refused:
        planned(models.QWEN3_NEXT_80B, GIB, state_sizing=StateSizing(num_slots=1_000))
    assert refused.value.least_bytes == 1_001 * 77_266_944 + 2 * 16 * 24_576


def test_an_odd_number_of_slots():
    """Slots are whole, and tracking has three settings."""
    with pytest.raises(ConfigError, match=r"num_slots must be a whole number .*got 2[.]5"):
        StateSizing(num_slots=2.5)
    with pytest.raises(ConfigError, match=r"num_slots must be a whole number .*got -4"):
        StateSizing(num_slots=-4)
    with pytest.raises(ConfigError, match="tracking is off, lazy or on, got 'maybe'"):
        StateSizing(tracking="maybe")


@pytest.mark.parametrize("page_size", [257, 512])
def test_a_page_size_that_no_engine_has(page_size):
    """The engine's own limit is named."""
    with pytest.raises(ConfigError, match=r"page_size .* must be a whole number in \[1, 256\]"):
        planned(LLAMA, GIB, page_size=page_size)


def test_a_context_that_no_engine_counts():
    """What is asked for is named, and what works in all: two tokens are the reserve."""
    with pytest.raises(ConfigError, match=r"a context of 3,000,000,000 .* 2,147,483,646 in all"):
        planned(LLAMA, GIB, context_len=3_000_000_000)
    assert planned(LLAMA, GIB, context_len=2_147_483_644).row_capacity == 2_147_483_646


def test_ranks_that_agree_on_more_than_there_is():
    """A callable that does not give the least is found out."""
    with pytest.raises(ConfigError, match="the least of all ranks' numbers"):
        planned(LLAMA, GIB, agree=lambda own: own + 1)


def test_a_rank_whose_neighbour_has_no_room():
    """It is not told to get more memory, as it has enough."""
    with pytest.raises(BudgetTooSmall, match="This rank has room, and another has not"):
        configurator(LLAMA, GIB, agree=lambda own: 0).configure(DEVICE)


def test_a_draft_and_no_pool():
    """A draft reads what prefill-only does not keep."""
    draft = Draft(algorithm="EAGLE", num_layers=1)
    with pytest.raises(ConfigError, match="a draft reads the KV of its target"):
        planned(LLAMA, GIB, prefill_only=True, draft=draft)


def test_a_figure_that_is_none():
    """The known ones are listed."""
    with pytest.raises(ConfigError, match=r"no figure 'tokens': .* max_total_num_tokens"):
        planned(LLAMA, GIB).why("tokens")
