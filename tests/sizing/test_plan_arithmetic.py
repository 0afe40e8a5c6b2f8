"""The formulas of the budget, one by one, with values worked out by hand."""

from fractions import Fraction

import pytest

from kvlife.errors import ConfigError
from kvlife.sizing import demand_pages, refuse_unservable
from kvlife.sizing.available import available_bytes
from kvlife.sizing.request_caps import most_requests
from kvlife.sizing.rows import Step, decode_reserve_len, row_capacity, worst_step_len
from kvlife.sizing.search import largest, least
from kvlife.sizing.states import StateCost, StateSizing, slots_per_request
from kvlife.sizing.vetting import vet_fraction
from kvlife.sizing.windows import ByRequests, admitting_pages, held_window_len, needed_window_len


def test_what_is_available():
    """60 of 80 free, 12 in a hundred of 80 kept, 3 reserved: 60 - 9.6 - 3, and 9.6 rounds up."""
    found = available_bytes(60_000, 80_000, Fraction("0.88"), {"graphs": 2_000, "other": 1_000})
    assert found.value == 60_000 - 9_600 - 3_000
    assert available_bytes(60, 81, Fraction("0.88"), {}).value == 60 - 10  # 9.72, rounded up
    assert found.filled == "60,000 - ceil(80,000 x (1 - 0.88)) - 3,000"


def test_a_fraction_is_what_was_written():
    """0.9 is nine tenths, and not the binary number next to it."""
    assert vet_fraction(0.9) == Fraction(9, 10)
    assert available_bytes(100, 100, vet_fraction(0.9), {}).value == 90


@pytest.mark.parametrize("odd", [0, 1, -0.5, 1.5, float("nan"), float("inf"), "half", None])
def test_a_fraction_lies_between_0_and_1(odd):
    """Everything else is refused with what was given."""
    with pytest.raises(ConfigError, match="between 0 and 1") as refused:
        vet_fraction(odd)
    assert repr(odd) in str(refused.value)


@pytest.mark.parametrize(
    ("tokens", "context", "requests"),
    [
        (500_000, 131_072, 2_048),  # 1,953 by the tokens, raised to 2,048
        (1_000_000, 131_072, 3_906),  # int(7.629 x 512)
        (2_000_000, 131_072, 4_096),  # 7,812, cut to 4,096
        (1_000, 131_072, 500),  # two tokens each at least
    ],
)
def test_requests_without_a_limit(tokens, context, requests):
    """min(max(int(tokens / context x 512), 2048), 4096), and at most tokens // 2."""
    assert most_requests(tokens, context).value == requests


def test_requests_with_a_limit_over_copies_of_the_attention():
    """512 over 4 ranks are 128; 510 are 127; a pool of 100 tokens has 50 all the same."""
    assert most_requests(500_000, 131_072, 512, 4).value == 128
    assert most_requests(500_000, 131_072, 510, 4).value == 127
    found = most_requests(100, 131_072, 512, 4)
    assert (found.value, found.bound) == (50, "max_total_num_tokens // 2")


def test_each_cap_is_named_where_it_binds():
    """The figure says which of the caps it is."""
    assert most_requests(500_000, 131_072).bound.startswith("min(max(int(")
    assert most_requests(500_000, 131_072, 512, 4).bound == "asked // attention_dp"
    many = most_requests(1 << 30, 131_072, 1 << 40)
    assert (many.value, many.bound) == (1 << 20, "max_rows")
    found = most_requests(500_000, 131_072, slots=(51, 3))
    assert (found.value, found.bound) == (17, "state_pool_size // slots_per_request")


def test_fewer_requests_than_ranks_are_refused():
    """3 over 4 ranks would leave each with none."""
    with pytest.raises(ConfigError, match="3 requests asked for, over 4 data-parallel ranks"):
        most_requests(500_000, 131_072, 3, 4)


def test_slots_of_a_request():
    """1 without a prefix cache, else 3; 1 or 2 more for tracking; 1 less without a lock."""

    def slots(tracking="off", locks=True, prefix_cache=True, overlap=True):
        sizing = StateSizing(tracking=tracking, decode_locks=locks)
        return slots_per_request(sizing, prefix_cache=prefix_cache, overlap=overlap).value

    assert slots(prefix_cache=False) == 1
    assert slots() == 3
    assert slots("lazy") == 4
    assert slots("on") == 5
    assert slots("on", overlap=False) == 4
    assert slots(locks=False) == 2
    assert slots("on", locks=False) == 4
    with pytest.raises(ConfigError, match="turn overlap on, or take tracking 'on'"):
        slots("lazy", overlap=False)


@pytest.mark.parametrize(
    ("drafts", "requests", "share", "slots"),
    [
        (0, 4_096, 52, 51),  # K + 1 <= 52
        (4, 4_096, 52, 20),  # 21 + (6 + 1) x 4 = 49; 22 + (7 + 1) x 4 = 54
        (4, 3, 52, 35),  # 36 + (3 + 1) x 4 = 52
        (4, 3, 4, 0),  # even no slot takes 1 + 4
    ],
)
def test_the_most_slots(drafts, requests, share, slots):
    """The largest K with (K + 1) s + (min(requests, K // 3) + 1) s D within the share."""
    cost = StateCost(slot_bytes=1_000, num_drafts=drafts, per_request=3, num_requests=requests)
    assert cost.most_slots(share * 1_000) == slots
    assert cost.most_slots(share * 1_000 + 999) == slots


def test_a_step_of_a_chain_and_of_a_tree():
    """A chain allocates its drafts; each branch of a tree whole pages, behind a partial one."""
    chain = Step(num_draft_tokens=4, depth=3, topk=1, is_speculative=True)
    assert worst_step_len(Step(), 16).value == 1
    assert worst_step_len(chain, 16).value == 4
    tree = Step(num_draft_tokens=16, depth=3, topk=8, is_speculative=True)
    assert worst_step_len(tree, 1).value == 24  # 8 branches of 3
    assert worst_step_len(tree, 64).value == 1_024  # ceil((63 + 3) / 64) = 2 pages each


def test_c14_the_row_holds_the_worst_reserve():
    """C14: 4 branches x 2 new pages x 64, doubled: 1,024 slots, all of them in the row."""
    tree = Step(num_draft_tokens=8, depth=5, topk=4, is_speculative=True)
    assert worst_step_len(tree, 64).value == 512
    reserve = decode_reserve_len(tree, 64).value
    assert reserve == 1_024
    context = 4_096
    committed = context - 200
    assert committed + reserve == context + 824  # what passed the end by 812 where 12 were spare
    assert committed + reserve <= row_capacity(context, reserve).value


def test_the_reserve_of_plain_decoding():
    """One token for each step in flight."""
    assert decode_reserve_len(Step(overlap=False), 16).value == 1
    assert decode_reserve_len(Step(overlap=True), 16).value == 2


def test_a_window_that_requests_size():
    """128 + 2 x 4 + 4 + 15 in pages: 160; 10 requests and a chunk of 100: 1,700, 107 pages."""
    sizing = ByRequests(eviction_interval=2, chunk_len=100)
    held = held_window_len("swa", 128, 16, sizing, draft_tokens=4, ahead_len=4)
    assert held.value == 160

    def needed(*, overlap):
        return needed_window_len("swa", held, 16, sizing, num_requests=10, overlap=overlap).value

    assert needed(overlap=False) == 107 * 16
    assert needed(overlap=True) == 113 * 16  # 1,800
    short = held_window_len("swa", 5, 16, ByRequests(), draft_tokens=1, ahead_len=0)
    assert short.value == 32  # a window of 5 keeps a page, and where it begins is in another


def test_a_window_pool_that_admits_nobody():
    """Window and a page have to be less than the pool: 144 tokens than 10 pages, 116 than 8."""
    assert admitting_pages(128, 16) == 10
    assert admitting_pages(100, 16) == 8
    assert admitting_pages(128, 1) == 130


def test_c43_all_beams_are_counted_at_the_door():
    """C43: 1 shared page and 8 private ones are 9, and the pool has 8."""
    assert demand_pages(32, 32, 32, num_beams=8) == 9
    with pytest.raises(ConfigError, match="8 beams take 9 pages of 32, and the pool has 8"):
        refuse_unservable(32, 32, 32, 8, num_beams=8)
    refuse_unservable(32, 32, 32, 8, num_beams=7)
    # Divided by the beams, the pool would have one page for each, and this needs two.
    refuse_unservable(32, 32, 32, 8, num_beams=1)


def test_beams_have_their_own_copy_of_a_partial_page():
    """33 tokens of a prompt: one page is shared, and each beam writes on in a copy of the next."""
    assert demand_pages(33, 1, 32, num_beams=4) == 1 + 4
    assert demand_pages(64, 0, 32, num_beams=4) == 2


@pytest.mark.parametrize(("prompt", "new", "beams"), [(0, 1, 1), (1, -1, 1), (1, 1, 0)])
def test_a_request_that_is_none(prompt, new, beams):
    """An empty prompt, a negative length, no beam."""
    with pytest.raises(ConfigError, match="a request has a prompt"):
        demand_pages(prompt, new, 32, beams)


@pytest.mark.parametrize("bound", [0, 1, 6, 7, 8])
def test_the_ends_of_a_search(bound):
    """The largest that fits, also where none or all do, and the least that suffices."""
    assert largest(lambda number: number <= bound, 7) == min(bound, 7)
    assert least(lambda number: number > bound, 8) == (bound + 1 if bound < 8 else None)
