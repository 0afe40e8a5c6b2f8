"""Small runs, made by hand, in which something is held in every way, or lost."""

import attrs
import numpy as np
import recorded_runs as made

from kvlife import Checker
from kvlife.events import (
    Marked,
    Pinned,
    Protected,
    Retracted,
    RolledBack,
    SessionSaved,
    StepDispatched,
    StepSettled,
)

CONFIG = attrs.evolve(made.CONFIG, max_requests=6)
NO_LINKS = np.empty((0, 4), np.int32)
NONE = made.ints()


def protected(row, length, *keys):
    return Protected(row, length, (np.array(keys, np.uint64),), NO_LINKS)


# Pages 1 and 2 are published by r1, which goes on to page 3; of r2's, page 4 is left in the cache,
# and page 5 pinned. r3 drains with page 6 in step 7, r4 has page 7 and left page 8 in step 8; a
# session idles on page 9; r6 waits, and gave page 10 back.
EVERY_KIND = [
    [made.admitted("r1", 1), made.allocated([1], [12], [1, 2, 3]), made.committed([1], [8])],
    [protected(1, 8, 11, 12)],
    [made.admitted("r2", 2), made.allocated([2], [8], [4, 5]), made.committed([2], [8])],
    [protected(2, 8, 21, 22), made.released("r2", 2, [4, 5])],
    [Pinned("p1", "copy", False, None, 0, made.ints(5))],  # seq 9
    [made.admitted("r3", 2, 4), made.allocated([2], [4], [6])],
    [StepDispatched(7, made.ints(2)), made.released("r3", 2, [], "aborted")],  # seqs 12, 13
    [made.admitted("r4", 3, 4), made.allocated([3], [8], [7, 8])],
    [StepDispatched(8, made.ints(3))],  # seq 16
    [RolledBack(made.ints(3), made.ints(4), made.ints(0), (made.ints(8),), NO_LINKS)],
    [made.admitted("r5", 4, 4), made.allocated([4], [4], [9]), made.committed([4], [4])],
    [SessionSaved("s1", "r5", 4, 4, (NONE,))],  # seq 21
    [made.admitted("r6", 5, 4), made.allocated([5], [4], [10]), made.committed([5], [4])],
    [Retracted("r6", 5, None, (made.ints(10),))],  # seq 25
]
LAST_SEQ = 25


def every_kind(path, *, close=True):
    """A sound run, at the end of which something is held in each way there is."""
    return made.observe(path, EVERY_KIND, config=CONFIG, close=close)


def faulty(path, facts, *, config=CONFIG, close=False):
    """A run that goes on behind what is wrong with it, and is not closed."""
    return made.observe(path, facts, config=config, checker=Checker(policy="collect"), close=close)


# r1 has pages 1 to 3, and gives back page 1 alone at seq 3.
SHORT_RELEASE = [
    [made.admitted("r1", 1), made.allocated([1], [12], [1, 2, 3]), made.committed([1], [12])],
    [made.released("r1", 1, [1])],
    made.life_of("r2", 2, [7, 8]),
]

# r1 is released at seq 3 and drains, and the settle at seq 4 names page 1 of its pages 1 and 2.
SHORT_DRAIN = [
    [made.admitted("r1", 1), made.allocated([1], [8], [1, 2])],
    [StepDispatched(1, made.ints(1)), made.released("r1", 1, [])],
    [StepSettled(1, made.ints(1), (made.ints(1),))],
    made.life_of("r2", 2, [7, 8]),
]

# r1 publishes pages 1 and 2, and r2 hits them at seq 4. At seq 5 r1 ends and does not name page 2;
# at seq 6 r2 does, so that the last event of page 2 lies behind the one that lost it.
SHORT_SHARE = [
    [made.admitted("r1", 1), made.allocated([1], [8], [1, 2]), made.committed([1], [8])],
    [protected(1, 8, 11, 12)],
    [attrs.evolve(made.admitted("r2", 2, 12), prefix_len=8, pages=(made.ints(1, 2),))],
    [made.released("r1", 1, [1])],
    [made.released("r2", 2, [1, 2])],
]

IDLE = [Marked("nothing runs", True)]
