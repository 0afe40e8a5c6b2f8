"""What the golden log of format 1 holds, written by hand. It never changes.

`golden/v1/run-000001` is compressed and has a snapshot, `run-000002` is raw. Both hold `GROUPS`.
"""

import sys
from pathlib import Path

import numpy as np

from kvlife.config import CacheGroup, PoolConfig
from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Evicted,
    Marked,
    Pinned,
    Protected,
    Released,
    Resized,
    Resumed,
    Retracted,
    RolledBack,
    SessionClosed,
    SessionRestored,
    SessionSaved,
    StepDispatched,
    StepSettled,
    Unpinned,
    Violated,
    WindowEvicted,
)
from kvlife.ledger import FrozenState
from kvlife.log import LogWriter, RunHeader

CONFIG = PoolConfig(
    page_size=16,
    num_pages=5000,
    max_requests=400,
    max_context_len=4096,
    groups=(CacheGroup("full"), CacheGroup("swa", window=64, num_pages=200)),
)
HEADER = RunHeader(
    config=CONFIG,
    policies={"refs-balance": "collect"},
    level="event",
    key_fingerprint="5f3759df",
    engine_version="0.1.0",
    group="replica-0",
    rank=1,
    world_size=2,
    created_ns=1_700_000_000_000_000_000,
)
DIGEST = 0x1234_5678_9ABC_DEF0


def ints(*values):
    """A read-only int32 array."""
    array = np.array(values, np.int32)
    array.setflags(write=False)
    return array


NONE = ints()


def one_of_each():
    """An event of every kind, for the pool `CONFIG`."""
    batch, lengths = ints(1, 2, 3, 4, 5, 6), ints(40, 41, 42, 43, 44, 45)
    keys = (np.array([7, 2**63], np.uint64), np.array([0], np.uint64))
    return [
        Admitted("r1", 1, 2**63 + 5, 100, 32, 0, (16,), (ints(10, 11), ints(3))),
        Resumed("r2", 2, 0, 50, 0, 4, (0,), (NONE, NONE), 20, (ints(12, 14), ints(4, 6))),
        Allocated(batch, lengths, (ints(20, 21, 22, 23), ints(100)), (ints(0, 0, 0, 16, 16, 0),)),
        Committed(batch, lengths),
        Protected(1, 32, keys, np.array([[0, 1, 10, 20], [1, 0, 3, 5]], np.int32)),
        RolledBack(batch, lengths, lengths, (ints(23), NONE), np.empty((0, 4), np.int32)),
        WindowEvicted(1, batch, ints(0, 0, 0, 16, 16, 16), ints(100)),
        Released("r1", 1, "finished", (ints(10, 20), ints(3)), ints(70_000, 70_001)),
        Released("r3", None, "aborted", (NONE, NONE), NONE),
        Retracted("r2", 2, ints(9), (ints(12, 14), NONE)),
        Retracted("r4", 3, None, (NONE, NONE)),
        Evicted("pressure", (ints(4000, 3999, 3998), NONE)),
        SessionSaved("s1", "r5", 4, 64, (ints(40), NONE)),
        SessionRestored("s1", "r6", 4, 48, 90, (NONE, NONE)),
        SessionClosed("s1", None, (NONE, NONE)),
        StepDispatched(7, batch),
        StepSettled(7, ints(5), (ints(44), NONE)),
        Pinned("p1", "copy", True, None, 0, ints(45, 47)),
        Unpinned("p1", 0, ints(45, 47)),
        Resized(0, 4000),
        Marked("a note, \u00e4\u4e00", True),
        Violated(19, "refs-balance", False),
    ]


def groups():
    """Each kind alone, two groups of several events, and 300 decoding steps of 40 rows."""
    each = one_of_each()
    found = [[event] for event in each] + [each[:3], each[19:]]
    rows = ints(*range(1, 80, 2))
    for step in range(300):
        lengths = np.arange(40, dtype=np.int32) * 3 + step
        found.append([Allocated(rows, lengths, (ints(step + 1, 9 * step + 2), NONE))])
        found.append([Committed(rows, lengths)])
    return found


class State:
    """The snapshot before the first decoding step."""

    def __init__(self, seq):
        self.seq = seq

    def freeze(self):
        pages = np.array([5, 6, 70_000], np.int32)
        keys = np.array([[1, 2**64 - 1]], np.uint64)
        return FrozenState({"pages": pages, "keys": keys}, b"books", 77)

    def release(self):
        pass


def write(root):
    """Write the golden log as today's writer does."""
    for compress in (True, False):
        writer = LogWriter(root, segment_bytes=4096, compress=compress)
        writer.start(HEADER)
        for step, group in enumerate(groups()):
            if step == 24 and compress:
                writer.snapshot(State(writer.next_seq))
            writer.append(writer.next_seq, 2 * step, 1000 + step * 8_000_000, group)
        writer.close(DIGEST)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
