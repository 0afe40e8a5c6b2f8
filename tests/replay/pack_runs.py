"""A run full of names, and what the tests of packs share."""

import numpy as np
from recorded_runs import (
    CONFIG,
    allocated,
    answered,
    committed,
    ints,
    released,
    write_snapshot,
)

from kvlife import LogWriter, Observer
from kvlife.events import (
    Admitted,
    Marked,
    Pinned,
    Protected,
    SessionSaved,
    Unpinned,
)
from kvlife.log import open_run

RID, OTHER, SESSION, PIN, KIND, NOTE, GROUP, FINGERPRINT = SECRETS = (
    "alice@example.org",
    "bob-sends-this",
    "session-of-carol",
    "pin-for-dave",
    "called-erin",
    "note about frank",
    "cluster-of-grace",
    "fingerprint-of-heidi",
)
NAMESPACE = 0x1122334455667788
KEYS = (0x0102030405060708, 0x1817161514131211)


def whispering_run(path, *, close=True):
    """A run in which every kind of name is a secret, in events and in both its snapshots."""
    observer = Observer(
        CONFIG,
        log=LogWriter(path, snapshot_every_bytes=1 << 20),
        clock=lambda: 0,
        group=GROUP,
        key_fingerprint=FINGERPRINT,
    )
    for event in (
        Admitted(OTHER, 2, NAMESPACE, 4, 0, 0, (), (ints(),)),
        allocated([2], [4], [9]),
        committed([2], [4]),
        Admitted(RID, 1, NAMESPACE, 8, 0, 0, (), (ints(),)),
        allocated([1], [8], [1, 2]),
        committed([1], [8]),
        Protected(1, 8, (np.array(KEYS, np.uint64),), np.empty((0, 4), np.int32)),
        Pinned(PIN, KIND, False, RID, 0, ints(1)),
        SessionSaved(SESSION, OTHER, 2, 4, (ints(),)),
    ):
        observer.observe(event)
    write_snapshot(observer)
    observer.observe(Marked(NOTE, idle=False))
    write_snapshot(observer)
    observer.observe(Unpinned(PIN, 0, ints(1)))
    observer.observe(released(RID, 1, [1, 2]))
    if close:
        observer.close()
    return observer


def packed(capsys, log, output, *arguments):
    status, told = answered(capsys, "pack", log, "-o", output, *arguments)
    assert status == 0
    return told


def events_of(path, start=None):
    return [item.event for item in open_run(path).events(start)]
