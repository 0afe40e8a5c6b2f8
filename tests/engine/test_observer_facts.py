"""Facts as a foreign allocator gives them: its own buffers, several events a group, any size."""

import numpy as np
import pytest

from kvlife import LogWriter, Observer, PoolConfig
from kvlife.errors import EventError
from kvlife.events import Admitted, Allocated, Committed, Marked, Pinned, Resized, Violated
from kvlife.log import open_run
from kvlife.replay.replaying.session import Settings, replay_run

CONFIG = PoolConfig(page_size=4, num_pages=12, max_requests=3, max_context_len=32)
NONE = np.empty(0, np.int32)


def ints(*values):
    return np.array(values, np.int32)


def admitted(rid, row):
    return Admitted(rid, row, 0, 4, 0, 0, (), (NONE,))


@pytest.fixture
def observer(tmp_path):
    made = Observer(CONFIG, log=LogWriter(tmp_path), clock=lambda: 0)
    yield made
    made.close()


def test_buffers_that_the_caller_uses_again_are_not_the_state(observer, tmp_path):
    """An allocator may write into its arrays, and bases of views, as soon as it has reported."""
    rows, lengths, pages = ints(1, 2), ints(3, 3), ints(1, 2)
    view = lengths[:]
    view.setflags(write=False)
    observer.observe(admitted("a", 1), admitted("b", 2))
    observer.observe(Allocated(rows, view, (pages,), None))
    observer.observe(Committed(rows, lengths), Pinned("p", "copy", False, None, 0, pages))
    digest = observer.ledger.digest()
    rows[:], lengths[:], pages[:] = 0, 0, 0
    assert observer.ledger.digest() == digest
    assert observer.ledger.record("a").kv_committed_len == 3
    observer.close()
    outcome = replay_run(open_run(tmp_path), Settings())
    assert (outcome.found, outcome.digest, outcome.digest_ok) == ((), digest, True)


def test_each_event_of_a_group_is_held_to_the_pools_that_it_meets(observer):
    """Behind a growth its pages are known, behind a shrink those above are not."""
    taken = Allocated(ints(1), ints(4), (ints(15),), None)
    observer.observe(Resized(0, 16), admitted("a", 1), taken)
    before = (observer.ledger.digest(), observer.next_seq)
    pinned = Pinned("p", "copy", False, None, 0, ints(15))
    with pytest.raises(EventError, match=r"15, out of \[0, 12\)"):
        observer.observe(Resized(0, 12), pinned)
    assert (observer.ledger.digest(), observer.next_seq) == before


def test_pools_beyond_memory_are_no_fact(observer):
    """The observer refuses a size that it could not keep books of."""
    with pytest.raises(EventError, match="GiB"):
        observer.observe(Resized(0, 1 << 50))
    assert (observer.next_seq, observer.closed) == (0, False)


def test_a_violation_is_not_a_fact_to_report(observer):
    """Its record ends a log, so only the observer that found it writes one."""
    with pytest.raises(EventError, match="observer itself"):
        observer.observe(Marked("x", False), Violated(0, "refs-balance", False))
    assert observer.next_seq == 0
