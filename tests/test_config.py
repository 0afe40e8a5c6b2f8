"""Configurations that cannot be: refused where they are made, and before anything is written."""

import numpy as np
import pytest

from kvlife import CacheGroup, ConfigError, KvEngine, LogWriter, PoolConfig

POOL = {"page_size": 4, "num_pages": 12, "max_requests": 3, "max_context_len": 32}
UNBUILDABLE = [
    ("page_size", {"page_size": 257}),
    ("num_pages", {"num_pages": np.int64(12)}),
    ("max_requests", {"max_requests": 0}),
    ("duplicates", {"duplicates": "no"}),
    ("free_order", {"free_order": "random"}),
    ("printable", {"groups": (CacheGroup(3),)}),
    ("printable", {"groups": (CacheGroup("a\nb"),)}),
    ("printable", {"groups": (CacheGroup("full", space=4),)}),
    ("printable", {"groups": (CacheGroup("full", space="\ud800"),)}),
    ("num_pages", {"groups": (CacheGroup("full", num_pages=0),)}),
]


@pytest.mark.parametrize(("word", "changes"), UNBUILDABLE)
def test_pools_that_cannot_be_are_refused(word, changes):
    """The error names the field."""
    with pytest.raises(ConfigError, match=word):
        PoolConfig(**{**POOL, **changes})


@pytest.mark.parametrize(
    "options", [{"policy": "newest"}, {"key_seed": -1}, {"rank": "first"}, {"group": 3}]
)
def test_engines_that_cannot_be_write_nothing(tmp_path, options):
    """A log that nobody could read, or that nobody would write, is not begun."""
    writer = LogWriter(tmp_path)
    with pytest.raises(ConfigError):
        KvEngine(PoolConfig(**POOL), log=writer, **options)
    assert not list(tmp_path.iterdir())
    with KvEngine(PoolConfig(**POOL), log=writer) as engine:
        engine.admit("r", [1])
