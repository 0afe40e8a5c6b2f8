"""The pools that random lives are lived in: page sizes, windows, shared spaces, publishing."""

from kvlife.config import CacheGroup, PoolConfig


def pools(page_size, num_pages, capacity, **more):
    return PoolConfig(
        page_size=page_size, num_pages=num_pages, max_requests=7, max_context_len=capacity, **more
    )


CONFIGS = (
    pools(4, 41, 48),
    pools(1, 60, 20, free_order="fifo"),
    pools(4, 41, 48, publish="scheduled", duplicates=True),
    pools(4, 41, 50, groups=(CacheGroup("full"), CacheGroup("swa", window=6))),
    pools(4, 41, 48, host_pages=13),
    pools(
        4,
        70,
        48,
        groups=(
            CacheGroup("full", space="all"),
            CacheGroup("swa", window=5, page_size=2, space="all"),
            CacheGroup("wide", window=9, space="all"),
        ),
        host_pages=24,
    ),
)
