"""Kinds of events that came after the golden log of format 1, written by hand.

`golden/v1-later/run-000001` is raw and holds `GROUPS`. A kind that is new goes into a log of its
own; what is here never changes.
"""

import sys
from pathlib import Path

import numpy as np
from golden_v1 import HEADER, NONE, ints

from kvlife.events import Committed, Digested
from kvlife.log import LogWriter

DIGEST = 0x0FED_CBA9_8765_4321


def digests(*values):
    """A read-only array of uint64."""
    array = np.array(values, np.uint64)
    array.setflags(write=False)
    return array


GROUPS = [
    [Committed(ints(1, 2), ints(16, 48))],
    [
        Digested(0, ints(10, 21, 22), digests(1, 2**63 + 7, 2**64 - 1)),
        Digested(1, ints(199), digests(0)),
    ],
    [Digested(1, NONE, digests())],
]


def write(root):
    """Write the log as today's writer does."""
    writer = LogWriter(root, segment_bytes=4096, compress=False)
    writer.start(HEADER)
    for step, group in enumerate(GROUPS):
        writer.append(writer.next_seq, step, 1000 + step * 8_000_000, group)
    writer.close(DIGEST)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
