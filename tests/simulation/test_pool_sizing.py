"""Pools for a workload: rows, row capacity, pages."""

import pytest
from loop_runs import tokens, workload_of

from kvlife.errors import ConfigError
from kvlife.simulation import (
    SchedulerConfig,
    least_pages,
    pages_without_eviction,
    size_pools,
)

WORKLOAD = workload_of((0, tokens(0, 10), 3), (0, tokens(50, 4), 30))


def test_a_row_holds_the_longest_request_and_its_reserve():
    """34 tokens, and twice a token with two drafts."""
    pools = size_pools(WORKLOAD, SchedulerConfig(draft=2), page_size=4, num_pages=50)
    assert pools.max_context_len == 34 + 2 * 3


@pytest.mark.parametrize(
    ("options", "num_rows"),
    [({}, 8), ({"overlap": True}, 16), ({"overlap": True, "session_rate": 0.5}, 24)],
)
def test_rows_for_what_drains_and_for_idle_sessions(options, num_rows):
    """As many rows again for each kind of row that no running request holds."""
    config = SchedulerConfig(max_running=8, **options)
    assert size_pools(WORKLOAD, config, page_size=4, num_pages=50).max_requests == num_rows


def test_the_smallest_pool():
    """36 tokens are 9 pages of 4; page 0 and one more are kept."""
    assert least_pages(WORKLOAD, SchedulerConfig(), 4) == 11
    with pytest.raises(ConfigError, match="at least 1 token"):
        least_pages(WORKLOAD, SchedulerConfig(), 0)


def test_a_pool_that_never_evicts():
    """13 and 34 tokens are 4 and 9 pages of 4, and page 0."""
    assert pages_without_eviction(WORKLOAD, 4) == 14


def test_a_window_group_gets_its_own_pages():
    """Never more than the full group, and enough for one prompt's chunk and window."""
    config = SchedulerConfig(max_running=2, chunk_tokens=8)
    pools = size_pools(WORKLOAD, config, page_size=4, num_pages=50, window=6)
    window = pools.groups[1]
    # A row keeps 6 + 16 tokens: 6 pages, and 2 more. A chunk of 8 ahead: 30 tokens, 8 pages, twice.
    assert (window.window, window.num_pages) == (6, 2 + 2 * 8 + 2 * 8)
