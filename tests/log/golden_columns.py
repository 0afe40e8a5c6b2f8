"""A snapshot file of version 2, all codings of columns in it, written by hand.

`golden/snapshot-2/run-000001` is raw and has one; what is here never changes.
"""

import sys
from pathlib import Path

import attrs
import numpy as np
from golden_v1 import HEADER, ints

from kvlife.events import Committed
from kvlife.log import LogWriter

ARRAYS = {
    "squares": np.arange(400, dtype=np.int32) ** 2 - 7,
    "thirds": np.arange(0, 900, 3, dtype=np.int32),
    "far": np.array([2**64 - 1 - 5 * (k % 9) for k in range(40_000)], np.uint64),
    "few": ints(5, 6, 70_000),
}


@attrs.frozen
class State:
    """The snapshot before seq 1."""

    seq: int
    arrays: dict = ARRAYS
    meta: bytes = b"books"
    digest: int = 99

    def freeze(self):
        """It does not change."""
        return self

    def release(self):
        """It keeps nothing."""


def write(root):
    """Write the log as today's writer does."""
    writer = LogWriter(root, segment_bytes=4096, compress=False)
    writer.start(HEADER)
    writer.append(0, 0, 1000, [Committed(ints(1, 2), ints(16, 48))])
    writer.snapshot(State(1))
    writer.close(DIGEST)


DIGEST = 0x1357_9BDF_0246_8ACE

if __name__ == "__main__":
    write(Path(sys.argv[1]))
