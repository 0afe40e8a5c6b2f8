"""What the fault cases are written with: events in short, an observer, an engine, its pages."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from kvlife.config import PoolConfig
from kvlife.engine import KvEngine, Observer
from kvlife.errors import EngineClosed, InvariantViolation
from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Evicted,
    Pinned,
    Protected,
    Released,
    Retracted,
    RolledBack,
    SessionRestored,
    SessionSaved,
    StepDispatched,
    StepSettled,
    Unpinned,
    WindowEvicted,
)
from kvlife.invariants import Checker
from kvlife.ledger import PageState

LINKS = np.empty((0, 4), np.int32)


class Tape:
    """A log in memory: the events that were appended, in order; `full` makes appends fail."""

    wants_snapshot = False
    log_bytes = 0
    num_gaps = 0

    def __init__(self):
        self.events = []
        self.full = None

    def start(self, header):
        self.header = header

    def append(self, first, step, now, events):
        if self.full is not None:
            raise self.full
        self.events += events

    def close(self, digest):
        self.digest = digest


def pools(page_size, num_pages, *, rows=8, capacity=128, **more):
    """The configuration of a case; `num_pages` counts the pages that can be handed out."""
    return PoolConfig(
        page_size=page_size,
        num_pages=num_pages + 1,
        max_requests=rows,
        max_context_len=capacity,
        **more,
    )


def watch(page_size, num_pages, **more):
    """An observer of a foreign allocator with these pools, every event checked."""
    return Observer(pools(page_size, num_pages, **more), checker=Checker(), clock=lambda: 0)


def watch_on(page_size, num_pages, **more):
    """As `watch`, but it applies what is faulty as well, and goes on."""
    checker = Checker(policy="collect")
    return Observer(pools(page_size, num_pages, **more), checker=checker, clock=lambda: 0)


def tell(observer, *events):
    """Report sound events: none raises an alarm, and the whole state stands a recount."""
    for event in events:
        observer.observe(event)
        assert observer.audit() == []


def broken_by(observer, event):
    """Report the faulty event: it ends the run. Returns the finding, named for this very event."""
    seq = observer.next_seq
    with pytest.raises(InvariantViolation) as caught:
        observer.observe(event)
    found = observer.checker.stats.first
    assert (caught.value.seq, caught.value.id) == (seq, found.id)
    with pytest.raises(EngineClosed):
        observer.mark("after the violation")
    return found


def run_engine(page_size, num_pages, **more):
    """An engine with these pools, every event checked, its log in memory."""
    return KvEngine(
        pools(page_size, num_pages, **more),
        log=Tape(),
        checker=Checker(),
        key_seed=7,
        clock=lambda: 0,
    )


def standing(engine):
    """All that a refused command must leave alone: state, prefix index, seq and log."""
    groups = range(len(engine.ledger.layout.groups))
    return (
        engine.ledger.digest(),
        [engine.index.pages(group).tolist() for group in groups],
        engine.next_seq,
        len(engine.log.events),
    )


@contextmanager
def refused(engine, error, match):
    """The command inside is refused with this error, and changes nothing."""
    before = standing(engine)
    with pytest.raises(error, match=match):
        yield
    assert standing(engine) == before


@contextmanager
def unchanged(engine):
    """The command inside is a no-op: it makes no event."""
    before = standing(engine)
    yield
    assert standing(engine) == before


def in_state(observer, state, group=0):
    """The pages of a group's space that are in a state, as a set."""
    space = observer.ledger.spaces[observer.ledger.layout.groups[group].space_idx]
    return set(np.flatnonzero(space.state == PageState[state]).tolist())


def row_pages(observer, rid, group=0):
    """The page table of a request in a group; 0 is an entry that it does not reference."""
    return observer.ledger.pages_of(observer.ledger.requests[rid], group).tolist()


def refs_of(observer, *pages, group=0):
    """How many rows reference each page."""
    space = observer.ledger.spaces[observer.ledger.layout.groups[group].space_idx]
    return [int(space.refs[page]) for page in pages]


def ladder(observer, rid):
    """The lengths of a request: protected, committed, allocated."""
    record = observer.ledger.record(rid)
    return (record.cache_protected_len, record.kv_committed_len, record.kv_allocated_len)


def prefill(engine, rid, tokens):
    """Admit a request and compute its whole prompt."""
    engine.admit(rid, tokens)
    engine.allocate([rid], [len(tokens)])
    engine.commit([rid], [len(tokens)])


def ends_clean(engine):
    """Nothing is held: the idle mark and the recount are clean, and a flush frees every page."""
    engine.mark("idle", idle=True)
    assert engine.audit() == []
    engine.flush()
    for space in engine.ledger.spaces:
        assert space.free.num_free == space.num_pages - 1
    engine.close()
    assert engine.stats().violations == {}


def numbers(values=()):
    """A read-only int32 array."""
    array = np.array(list(values), np.int32)
    array.setflags(write=False)
    return array


def lists(pages):
    """Page lists, one for each cache group."""
    return tuple(numbers(part) for part in pages)


def admitted(rid, row, prompt_len, *pages, prefix_len=0, cursors=(), floor=0):
    """A request binds a row; `pages` are its prefix's, one list for each group."""
    return Admitted(rid, row, 0, prompt_len, prefix_len, floor, cursors, lists(pages or ([],)))


def allocated(lens, *pages, cursors=None):
    """Rows (row: new allocated length) take pages, one list for each group."""
    moved = None if cursors is None else lists(cursors)
    return Allocated(numbers(lens), numbers(lens.values()), lists(pages or ([],)), moved)


def committed(lens):
    """Rows (row: new committed length) have results."""
    return Committed(numbers(lens), numbers(lens.values()))


def published(row, protected_len, *keys, rebinds=LINKS):
    """A row publishes pages under keys, one list for each group."""
    return Protected(row, protected_len, tuple(np.array(part, np.uint64) for part in keys), rebinds)


def rolled_back(row, committed_len, allocated_len, *pages):
    """A row lets its tail go."""
    ends = (numbers([allocated_len]), numbers([committed_len]))
    return RolledBack(numbers([row]), *ends, lists(pages or ([],)), LINKS)


def window_evicted(group, row, cursor, pages):
    """A row's window cursor moves."""
    return WindowEvicted(group, numbers([row]), numbers([cursor]), numbers(pages))


def released(rid, row, reason, *pages):
    """A request is gone."""
    return Released(rid, row, reason, lists(pages or ([],)), numbers())


def retracted(rid, row, *pages):
    """A request waits, without KV and without a backup."""
    return Retracted(rid, row, None, lists(pages))


def saved(session_id, rid, row, kept_len, *pages):
    """A turn ends: the row passes to the session."""
    return SessionSaved(session_id, rid, row, kept_len, lists(pages or ([],)))


def restored(session_id, rid, row, kept_len, prompt_len, *pages):
    """A turn begins on a session's row."""
    return SessionRestored(session_id, rid, row, kept_len, prompt_len, lists(pages or ([],)))


def evicted(reason, *pages):
    """Cached pages become FREE."""
    return Evicted(reason, lists(pages))


def dispatched(step, *rows):
    """A step is in flight."""
    return StepDispatched(step, numbers(rows))


def settled(step, drained=(), *pages):
    """A step's result is in; rows that drained let go."""
    return StepSettled(step, numbers(drained), lists(pages or ([],)))


def pinned(pin_id, pages, *, kind="store", writes=False, owner=None, group=0):
    """Something outside reads or writes pages."""
    return Pinned(pin_id, kind, writes, owner, group, numbers(pages))


def unpinned(pin_id, pages, group=0):
    """The reader or writer is done."""
    return Unpinned(pin_id, group, numbers(pages))
