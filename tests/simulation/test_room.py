"""The gauge of free and evictable pages."""

import numpy as np
import pytest

from kvlife.config import PoolConfig
from kvlife.engine import KvEngine
from kvlife.simulation.room import Room


@pytest.fixture
def engine():
    """Of 99 pages of one token, 40 are cached, 20 are held, and 39 are free."""
    engine = KvEngine(
        PoolConfig(page_size=1, num_pages=100, max_requests=4, max_context_len=100), key_seed=1
    )
    cached, held = np.arange(40, dtype=np.int32), np.arange(100, 120, dtype=np.int32)
    for rid, tokens in (("cached", cached), ("held", held)):
        engine.admit(rid, tokens)
        engine.allocate([rid], [len(tokens)])
        engine.commit([rid])
    engine.finish("cached", cached)
    return engine


def test_free_and_evictable_pages_can_be_had(engine):
    """79 pages are there, and not one more."""
    room = Room(engine)
    assert room.holds([79])
    assert not room.holds([80])


def test_what_was_spent_is_not_there_any_more(engine, monkeypatch):
    """After 30 are spent 49 are known to be left, without counting again."""
    room = Room(engine)
    room.holds([1])
    room.spend([30])
    monkeypatch.setattr(engine, "num_evictable", lambda _name: pytest.fail("counted again"))
    assert room.holds([49])


def test_a_doubt_is_settled_by_counting(engine):
    """Nothing was really taken, so the count finds all 79 again."""
    room = Room(engine)
    room.spend([79])
    assert room.holds([79])


def test_free_pages_are_taken_without_an_eviction(engine):
    """39 are free: 30 and 9 of them can go, then no more."""
    room = Room(engine)
    assert room.take_free(30)
    assert room.take_free(9)
    engine.allocate(["held"], [20 + 39])
    assert not room.take_free(1)
    assert engine.stats().evicted_pages == 0


def test_more_than_is_free_is_evicted(engine):
    """50 pages need 11 evictions, which leaves 29 that can be had."""
    room = Room(engine)
    assert room.holds([50])
    room.take([50])
    assert engine.stats().evicted_pages == 11
    engine.allocate(["held"], [20 + 50])
    assert room.holds([29])
    assert not room.holds([30])
