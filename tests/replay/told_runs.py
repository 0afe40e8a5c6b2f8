"""A small run in which everything happens that an export tells of, and when: seq n at n+1 us."""

import numpy as np
from recorded_runs import CONFIG, admitted, allocated, committed, ints, released

from kvlife import LogWriter, Observer
from kvlife.events import (
    Admitted,
    Evicted,
    Marked,
    Pinned,
    Protected,
    Resumed,
    Retracted,
    RolledBack,
    SessionClosed,
    SessionRestored,
    SessionSaved,
    StepDispatched,
    StepSettled,
    Unpinned,
)

NO_LINKS = np.empty((0, 4), np.int32)
KEYS = (0xAB, 0xFEDCBA9876543210)
EVENTS = (
    # A request becomes a session, whose second turn publishes, and which is closed.
    admitted("r1", 1),  # 0
    allocated([1], [8], [1, 2]),
    committed([1], [8]),
    Pinned("p1", "copy", False, "r1", 0, ints(1)),
    Unpinned("p1", 0, ints(1)),
    SessionSaved("s1", "r1", 1, 8, (ints(),)),  # 5
    SessionRestored("s1", "r2", 1, 8, 12, (ints(),)),
    allocated([1], [12], [3]),
    committed([1], [12]),
    SessionSaved("s1", "r2", 1, 12, (ints(),)),
    SessionClosed("s1", 1, (ints(1, 2, 3),)),  # 10
    # A request publishes and ends; its pages are hit, and evicted.
    admitted("r3", 2),
    allocated([2], [8], [4, 5]),
    committed([2], [8]),
    Protected(2, 8, (np.array(KEYS, np.uint64),), NO_LINKS),
    released("r3", 2, [4, 5]),  # 15
    # A request with a hit loses its row, comes back, rolls back, and drains with its last step.
    Admitted("r4", 3, 0, 12, 8, 0, (), (ints(4, 5),)),
    allocated([3], [12], [6]),
    Retracted("r4", 3, None, (ints(4, 5, 6),)),
    Resumed("r4", 2, 0, 12, 8, 0, (), (ints(4, 5),), 8, (ints(),)),
    allocated([2], [16], [7, 8]),  # 20
    StepDispatched(1, ints(2)),
    RolledBack(ints(2), ints(12), ints(8), (ints(8),), NO_LINKS),
    released("r4", 2, [], reason="aborted"),
    StepSettled(1, ints(2), (ints(4, 5, 7),)),
    Evicted("pressure", (ints(5),)),  # 25
    Marked("all quiet", idle=True),
    # One that goes on where the log ends.
    admitted("r5", 4),
    allocated([4], [4], [9]),
)


def told_run(path):
    """Write the run, and close it."""
    now = [0]
    observer = Observer(CONFIG, log=LogWriter(path), clock=lambda: now[0])
    for seq, event in enumerate(EVENTS):
        now[0] = (seq + 1) * 1000
        observer.observe(event)
    observer.close()
    return path
