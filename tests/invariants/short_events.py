"""Events in short, and a ledger with a checker that is fed them one by one."""

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
    WindowEvicted,
    check_structure,
)
from kvlife.invariants import Checker
from kvlife.ledger import Ledger, derive

NO_LINKS = np.empty((0, 4), np.int32)
NO_PAGES = np.empty(0, np.int32)


def ints(*values):
    """A read-only int32 array."""
    array = np.array(values, np.int32)
    array.setflags(write=False)
    return array


def lists(pages):
    """Page lists of groups: of one group where plain numbers are given, else one list a group."""
    pages = list(pages)
    if pages and not isinstance(pages[0], int):
        return tuple(ints(*group) for group in pages)
    return (ints(*pages),)


def admit(rid, row, prefix=0, pages=(), *, prompt=16, floor=0, cursors=()):
    return Admitted(rid, row, 0, prompt, prefix, floor, tuple(cursors), lists(pages))


def resume(rid, row, prefix=0, pages=(), *, prompt=16, restored=None, new=(), cursors=()):
    end = prefix if restored is None else restored
    return Resumed(rid, row, 0, prompt, prefix, 0, tuple(cursors), lists(pages), end, lists(new))


def allocate(row, length, pages=(), cursors=None):
    skipped = None if cursors is None else tuple(ints(cursor) for cursor in cursors)
    return Allocated(ints(row), ints(length), lists(pages), skipped)


def commit(row, length):
    return Committed(ints(row), ints(length))


def protect(row, length, keys, rebinds=()):
    keys = list(keys)
    groups = keys if keys and not isinstance(keys[0], int) else [keys]
    links = np.array(rebinds, np.int32).reshape(-1, 4)
    return Protected(row, length, tuple(np.array(group, np.uint64) for group in groups), links)


def roll_back(row, allocated, committed, pages=(), copies=()):
    links = np.array(copies, np.int32).reshape(-1, 4)
    return RolledBack(ints(row), ints(allocated), ints(committed), lists(pages), links)


def evict_window(group, row, cursor, pages=()):
    return WindowEvicted(group, ints(row), ints(cursor), ints(*pages))


def evict(pages, reason="pressure"):
    return Evicted(reason, lists(pages))


def release(rid, row, pages=(), reason="aborted", host=()):
    return Released(rid, row, reason, lists(pages), ints(*host))


def retract(rid, row, pages=(), backup=None):
    return Retracted(rid, row, None if backup is None else ints(*backup), lists(pages))


def save(session, rid, row, kept, pages=()):
    return SessionSaved(session, rid, row, kept, lists(pages))


def restore(session, rid, row, kept, pages=(), *, prompt=16):
    return SessionRestored(session, rid, row, kept, prompt, lists(pages))


def close_session(session, row, pages=()):
    return SessionClosed(session, row, lists(pages))


def dispatch(step, *rows):
    return StepDispatched(step, ints(*rows))


def settle(step, drained=(), pages=()):
    return StepSettled(step, ints(*drained), lists(pages))


def pin(pin_id, pages, *, writes=False, owner=None, group=0):
    return Pinned(pin_id, "copy", writes, owner, group, ints(*pages))


def unpin(pin_id, pages, group=0):
    return Unpinned(pin_id, group, ints(*pages))


def resize(num_pages, space=0):
    return Resized(space, num_pages)


def idle():
    return Marked("idle", idle=True)


class Bench:
    """A ledger under a checker; `do` folds events in and gives the first finding among them."""

    def __init__(self, config, **options):
        self.ledger = Ledger(config)
        self.checker = Checker(**({"policy": "collect", "audit_every": None} | options))

    def do(self, *events):
        """Fold events in; what the guard or post-check of the last one finds, None if sound."""
        for event in events[:-1]:
            found = self._fold(event)
            assert found is None, found
        return self._fold(events[-1])

    def _fold(self, event):
        ledger, seq = self.ledger, self.ledger.next_seq
        check_structure(event, ledger.layout)
        change = derive(ledger, event)
        before = self.checker.guard(ledger, event, change, seq)
        ledger.apply(event, seq, 0, change)
        after = self.checker.post(ledger, event, change, seq)
        return before or after


def full(page_size=4, num_pages=16, **more):
    """One full-attention group; pages 1 to `num_pages` can be handed out."""
    sizes = {"max_requests": 6, "max_context_len": 64} | more
    return PoolConfig(page_size=page_size, num_pages=num_pages + 1, **sizes)


def windowed(page_size=4, num_pages=16, window=4, **more):
    """A full-attention group and a sliding-window group, each with a page space of its own."""
    groups = (CacheGroup("full"), CacheGroup("swa", window=window))
    return full(page_size, num_pages, groups=groups, **more)
