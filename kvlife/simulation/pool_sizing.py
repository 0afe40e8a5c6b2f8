"""The pools that a workload asks for: rows, row capacity, pages, and a window's pages."""

from __future__ import annotations

import numpy as np

from kvlife.config import CacheGroup, PoolConfig
from kvlife.errors import ConfigError
from kvlife.simulation.scheduler_config import SchedulerConfig
from kvlife.simulation.workload import Workload

FULL, WINDOW = "full", "window"

# A decoding row moves its window cursor once in so many steps.
WINDOW_STEPS = 16


def size_pools(
    workload: Workload,
    config: SchedulerConfig,
    *,
    page_size: int,
    num_pages: int,
    window: int | None = None,
    host_pages: int = 0,
) -> PoolConfig:
    """Pools for a workload; raises `ConfigError` where its longest request does not fit.

    Rows: one for each running request, as many again for rows that drain under overlap, and as
    many again for idle sessions. `host_pages` are for the KV of retracted requests.
    """
    capacity, least = _capacity(workload, config), least_pages(workload, config, page_size)
    if num_pages < least:
        raise ConfigError(
            f"num_pages is {num_pages}; the longest request may have {capacity} tokens and needs"
            f" {least} pages of {page_size}: give at least as many"
        )
    groups = [CacheGroup(FULL)]
    if window is not None:
        pages = _window_pages(config, page_size, window, capacity)
        groups.append(CacheGroup(WINDOW, window=window, num_pages=min(pages, num_pages)))
    num_kinds = 1 + config.overlap + (config.session_rate > 0)
    return PoolConfig(
        page_size=page_size,
        num_pages=num_pages,
        max_requests=config.max_running * num_kinds,
        max_context_len=capacity,
        groups=tuple(groups),
        host_pages=host_pages,
    )


def least_pages(workload: Workload, config: SchedulerConfig, page_size: int) -> int:
    """The smallest pool that its longest request fits into, in pages.

    Raises `ConfigError` where `page_size` is no size.
    """
    if page_size < 1:
        raise ConfigError(f"page_size is {page_size}; it must be at least 1 token")
    # Page 0 is reserved, and a rewound session may hold a page more until its step has settled.
    return 2 + -(-_capacity(workload, config) // page_size)


def pages_without_eviction(workload: Workload, page_size: int) -> int:
    """Pages with which a workload, taken one request after another, never evicts."""
    lens = workload.prompt_len.astype(np.int64) + workload.output_len
    return 1 + int((-(-lens // page_size)).sum())


def _capacity(workload: Workload, config: SchedulerConfig) -> int:
    longest = int((workload.prompt_len.astype(np.int64) + workload.output_len).max())
    return longest + config.reserve_len


def _window_pages(config: SchedulerConfig, page_size: int, window: int, capacity: int) -> int:
    """Each row keeps a window and what it adds between two moves; prefill runs ahead by chunks."""
    kept = min(capacity, max(window, page_size) + WINDOW_STEPS * config.tokens_per_row)
    ahead = min(capacity, (1 + config.overlap) * config.chunk_tokens)
    rows = config.max_running * (2 + -(-kept // page_size))
    return 2 + rows + 2 * (-(-(ahead + kept) // page_size))
