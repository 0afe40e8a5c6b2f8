"""The slots of decode steps, one after the other: beside the last one, or on the page just taken.

Pages are handed out from 1 up; the sizes make page ids that do not follow one another in a row.
"""

import numpy as np
import pytest

from kvlife import CacheGroup, KvEngine, PoolConfig


def started(lens, *groups, page_size=4, pools=None):
    """An engine whose requests r0, r1, ... have that many tokens, admitted in this order."""
    config = PoolConfig(
        page_size=page_size, num_pages=60, max_requests=4, max_context_len=60, groups=groups
    )
    engine = KvEngine(config, key_seed=1, pools=pools)
    for number, length in enumerate(lens):
        rid = f"r{number}"
        engine.admit(rid, list(range(100 * number, 100 * number + length)))
        engine.allocate([rid], [length])
        engine.commit([rid])
    return engine


def decoded(engine, rids, num_steps):
    """The slots of some steps in a row, with nothing between them but commits."""
    batch = engine.batch(rids)
    slots = []
    for _ in range(num_steps):
        slots.append(engine.decode(batch).tolist())
        engine.commit(batch)
    return slots


def test_a_request_alone_in_its_batch_crosses_into_the_page_it_took():
    """r0 has page 1 and r1 page 2, so that r0 goes on in page 3."""
    engine = started([3, 3], CacheGroup("full"))
    assert decoded(engine, ["r0"], 3) == [[7], [12], [13]]


@pytest.mark.parametrize("group", [CacheGroup("full"), CacheGroup("swa", window=20)])
def test_requests_cross_into_the_pages_they_took(group):
    """From pages 1 and 2, r1 into page 3 and then r0 into page 4; with a window alone too."""
    engine = started([2, 4], group)
    assert decoded(engine, ["r0", "r1"], 4) == [[6, 12], [7, 13], [16, 14], [17, 15]]


def test_full_groups_of_several_page_sizes_cross_by_themselves():
    """r0 and r1 cross in pages of 4, at the second step in a row, where r1 alone does in the other.

    In the first group r0 has page 1 and r1 pages 2 and 3; then r0 takes 4 and r1 takes 5.
    """
    groups = CacheGroup("small", page_size=4), CacheGroup("large", page_size=8)
    engine = started([3, 7], *groups, page_size=8)
    assert decoded(engine, ["r0", "r1"], 3) == [[7, 15], [16, 20], [17, 21]]


def test_slots_are_those_of_a_step_that_was_looked_at():
    """Reading lengths between steps, which ends what is kept of them, changes no slot."""
    kept, read = (started([3, 6, 8], CacheGroup("full"), page_size=4) for _ in range(2))
    batch = read.batch(["r0", "r1", "r2"])
    found = []
    for _ in range(9):
        found.append(read.decode(batch).tolist())
        read.commit(batch)
        assert np.all(read.ledger.rows.allocated[batch.rows] > 0)
    assert decoded(kept, ["r0", "r1", "r2"], 9) == found
