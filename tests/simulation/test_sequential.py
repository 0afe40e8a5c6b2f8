"""One request after another in a pool that never evicts: hits that can be counted by hand."""

import pytest
from loop_runs import tokens, workload_of

from kvlife.engine import KvEngine
from kvlife.simulation import (
    SchedulerConfig,
    SequentialRun,
    SimulationPlan,
    pages_without_eviction,
    read_mooncake,
    simulate,
    size_pools,
)

ALONE = SchedulerConfig(max_running=1)


def sequential(workload, page_size):
    num_pages = pages_without_eviction(workload, page_size) + 8
    pools = size_pools(workload, ALONE, page_size=page_size, num_pages=num_pages)
    return simulate(SimulationPlan(workload=workload, pools=pools))


def test_hits_are_the_longest_cached_prefix_in_whole_pages():
    """Prompts of 10, 10 and 13 with 10, then 7, tokens in common hit 8 and 4 in pages of 4."""
    first = tokens(0, 10)
    third = tokens(0, 13)
    third[7:] += 5_000
    outcome = sequential(workload_of((0, first, 3), (1, first, 2), (2, third, 1)), 4)
    assert outcome.tally.hit_tokens == 8 + 4
    assert outcome.tally.prompt_tokens == 33
    assert outcome.tally.output_tokens == 6
    assert outcome.stats.evicted_pages == 0


def test_hits_count_what_the_index_has_not_what_is_locked():
    """A prompt of 8 that is cached whole hits 8, of which 4 are computed again."""
    outcome = sequential(workload_of((0, tokens(0, 8), 1), (1, tokens(0, 8), 1)), 4)
    assert outcome.tally.hit_tokens == 8
    assert outcome.tally.prefill_tokens == 8 + 4


def test_each_request_takes_four_commands():
    """Admitted, allocated, committed, published, released: five events, and a mark at the end."""
    workload = workload_of((0, tokens(0, 8), 3))
    pools = size_pools(workload, ALONE, page_size=4, num_pages=16)
    engine = KvEngine(pools, key_seed=1)
    tally = SequentialRun(engine, workload).run()
    assert engine.next_seq == 6
    assert engine.stats().finished == 1
    # 8 and 2 tokens of KV are two whole pages of 4, published.
    assert engine.stats().pages["full"]["CACHED"] == 2
    assert tally.completed == 1


@pytest.mark.parametrize(
    ("name", "limit", "hit_tokens"),
    [
        # The README beside the traces gives both.
        ("conversation", None, 54_097_552),
        ("synthetic", None, 39_850_976),
        # The first five of `conversation` share one block of 512, which the first one publishes.
        ("conversation", 5, 4 * 512),
    ],
)
def test_a_trace_gives_the_published_figure(traces, name, limit, hit_tokens):
    """Page size 16, a pool that never evicts, exactly the tokens that the trace's ids share."""
    path = traces / "mooncake" / f"{name}.jsonl.gz"
    outcome = sequential(read_mooncake(path, limit=limit), 16)
    assert outcome.tally.hit_tokens == hit_tokens
    assert outcome.stats.evicted_pages == 0
    assert outcome.findings == ()
