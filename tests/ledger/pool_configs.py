"""Small pools that the tests of the ledger share."""

from kvlife import CacheGroup, PoolConfig


def pool(*groups, **options):
    """A pool of 20 pages of 4 tokens, and 4 rows of 22 tokens."""
    settings = {"page_size": 4, "num_pages": 20, "max_requests": 4, "max_context_len": 22}
    if groups:
        settings["groups"] = groups
    return PoolConfig(**{**settings, **options})


POOLS = {
    "one": pool(),
    "fifo": pool(free_order="fifo"),
    "window": pool(CacheGroup("full"), CacheGroup("swa", window=6, page_size=2)),
    "host": pool(CacheGroup("full"), CacheGroup("swa", window=6, page_size=2), host_pages=12),
    "shared": pool(CacheGroup("full", space="all"), CacheGroup("swa", window=6, space="all")),
}
