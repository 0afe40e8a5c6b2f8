"""Snapshots and digests: equal for equal states, different where any single column differs."""

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_configs import POOLS

from kvlife import CacheGroup, KvEngine, PoolConfig
from kvlife.errors import CommandRefused, LogCorrupt
from kvlife.invariants import Checker
from kvlife.ledger import Ledger
from kvlife.ledger.snapshot import FrozenState


def busy_engine(config, seed, num_commands=40):
    """An engine after random commands, with every book in use; and the events that made it."""
    rng = np.random.default_rng(seed)
    engine = KvEngine(config, checker=Checker(level="off"), key_seed=1, clock=lambda: 5)
    events, record = [], engine._record

    def recording(group, changes=()):
        first = engine.next_seq
        events.extend((first + idx, event) for idx, event in enumerate(group))
        record(group, changes)

    engine._record = recording
    for num in range(num_commands):
        rid = f"r{rng.integers(3)}"
        tokens = rng.integers(0, 2, rng.integers(1, 20))
        size = len(tokens)
        commands = (
            lambda rid=rid, tokens=tokens: engine.admit(rid, tokens, namespace="n"),
            lambda rid=rid, size=size: engine.allocate([rid], [size]),
            lambda rid=rid: engine.commit([rid]),
            lambda rid=rid, tokens=tokens: engine.protect(rid, tokens),
            lambda rid=rid, tokens=tokens: engine.finish(rid, tokens),
            lambda rid=rid: engine.retract(rid),
            lambda rid=rid: engine.retract_with_backup(rid),
            lambda rid=rid, tokens=tokens: engine.resume(rid, tokens),
            lambda rid=rid: engine.session_save("s", rid, 0),
            lambda num=num, rid=rid: engine.dispatch(num, [rid]),
            lambda: engine.settle(next(iter(engine.ledger.steps), 0)),
            lambda num=num: engine.pin(f"p{num}", [1 + num % 7], "copy"),
        )
        try:
            commands[rng.integers(len(commands))]()
        except CommandRefused:
            continue
    return engine, events


@pytest.mark.parametrize("name", POOLS)
@settings(max_examples=25)
@given(seed=st.integers(0, 1 << 30))
def test_restore_gives_the_state_back(name, seed):
    """A restored ledger has the same digest, and goes on to the same state."""
    engine, events = busy_engine(POOLS[name], seed)
    state = engine.ledger.snapshot().freeze()
    assert state.digest == engine.ledger.digest()
    again = Ledger.restore(POOLS[name], state)
    assert again.digest() == state.digest
    half = len(events) // 2
    folded = Ledger(POOLS[name])
    for seq, event in events[:half]:
        folded.apply(event, seq, 5)
    resumed = Ledger.restore(POOLS[name], folded.snapshot().freeze())
    for seq, event in events[half:]:
        folded.apply(event, seq, 5)
        resumed.apply(event, seq, 5)
    assert folded.digest() == resumed.digest() == state.digest


ROW_COLUMNS = [
    *("state", "generation", "protected", "committed", "allocated", "settled", "prompt_len"),
    *("floor", "in_flight", "newest_step", "namespace", "last_event"),
]
PAGE_COLUMNS = ["state", "group", "refs", "pins", "key", "link", "last_use", "last_event"]


def two_alike():
    """Two ledgers of the same state, with one live row, on which everything is held."""
    config = POOLS["window"]
    engine = KvEngine(config, checker=Checker(level="off"), key_seed=1, clock=lambda: 5)
    engine.admit("r0", list(range(12)), namespace="n")
    engine.allocate(["r0"], [12])
    engine.commit(["r0"])
    engine.protect("r0", list(range(12)))
    engine.dispatch(1, ["r0"])
    engine.pin("p", [1], "copy", owner="r0")
    engine.admit("r1", [5])
    engine.retract("r1")
    engine.admit("r2", [6])
    engine.session_save("s", "r2", 0)
    state = engine.ledger.snapshot().freeze()
    return engine.ledger, Ledger.restore(config, state)


@pytest.mark.parametrize("column", ROW_COLUMNS)
def test_each_row_column_is_in_the_digest(column):
    """One entry of one column of the rows changes the digest."""
    ledger, again = two_alike()
    row = ledger.requests["r0"]
    getattr(again.rows, column)[row] ^= 2
    assert again.digest() != ledger.digest()


@pytest.mark.parametrize("column", PAGE_COLUMNS)
@pytest.mark.parametrize("space", [0, 1])
def test_each_page_column_is_in_the_digest(space, column):
    """One entry of one column of the pages changes the digest."""
    ledger, again = two_alike()
    page = int(ledger.pages_of(ledger.requests["r0"], space)[0])
    getattr(again.spaces[space], column)[page] += 1
    assert again.digest() != ledger.digest()


@pytest.mark.parametrize(
    "change",
    [
        lambda ledger: ledger.tables[0].__setitem__(_entry(ledger, 0), 9),
        lambda ledger: ledger.tables[1].__setitem__(_entry(ledger, 1), 9),
        lambda ledger: ledger.rows.cursors.__setitem__((0, ledger.requests["r0"]), 2),
        lambda ledger: ledger.rows.rid.__setitem__(ledger.requests["r0"], "other"),
        lambda ledger: ledger.rows.session.__setitem__(ledger.requests["r0"], "other"),
        lambda ledger: ledger.spaces[0].free.take_head(ledger.spaces[0].free.head(1)),
        lambda ledger: ledger.waiting.clear(),
        lambda ledger: ledger.pins.clear(),
        lambda ledger: ledger.steps.clear(),
        lambda ledger: ledger.steps[1].noted.__setitem__(0, 3),
        lambda ledger: ledger.steps[1].pinned.append((0, np.array([1], np.int32))),
        lambda ledger: setattr(ledger, "next_seq", ledger.next_seq + 1),
        lambda ledger: setattr(ledger, "seq_base", 7),
        lambda ledger: _evolve(ledger.sessions, "s", num_turns=9),
        lambda ledger: _evolve(ledger.sessions, "s", rid="r9"),
        lambda ledger: _evolve(ledger.sessions, "s", kept_len=1),
        lambda ledger: _evolve(ledger.pins, "p", writes=True),
        lambda ledger: _evolve(ledger.pins, "p", owner=None),
        lambda ledger: _evolve(ledger.pins, "p", kind="store"),
        lambda ledger: _evolve(ledger.waiting, "r1", prompt_len=2),
        lambda ledger: _evolve(ledger.waiting, "r1", backup=np.array([4], np.int32)),
    ],
)
def test_each_book_is_in_the_digest(change):
    """Tables, cursors, holders, free lists, and each field of the books change the digest."""
    ledger, again = two_alike()
    assert again.digest() == ledger.digest()
    change(again)
    assert again.digest() != ledger.digest()


def _entry(ledger, group):
    return ledger.requests["r0"] * ledger.layout.groups[group].table_width


def _evolve(book, name, **changes):
    book[name] = attrs.evolve(book[name], **changes)


def test_the_order_of_the_free_list_is_state():
    """Two free lists with the same pages in another order will hand out others."""
    ledger, again = two_alike()
    free = again.spaces[0].free
    head = free.head(2)
    assert free.take_head(head)
    assert free.put_back(head[::-1].copy())
    assert again.digest() != ledger.digest()


def test_a_snapshot_is_not_changed_by_later_events():
    """What was copied stays as it was, though the ledger goes on."""
    config = PoolConfig(page_size=4, num_pages=9, max_requests=2, max_context_len=16)
    engine = KvEngine(config, checker=Checker(level="off"), key_seed=1, clock=lambda: 5)
    engine.admit("r", [1, 2, 3, 4, 5])
    before = engine.ledger.digest()
    snapshot = engine.ledger.snapshot()
    engine.allocate(["r"], [9])
    engine.commit(["r"])
    assert snapshot.freeze().digest == before
    snapshot.release()


def test_a_state_with_another_digest_is_refused():
    """A changed array no longer has the digest that the state names."""
    ledger, _ = two_alike()
    state = ledger.snapshot().freeze()
    arrays = {name: array.copy() for name, array in state.arrays.items()}
    arrays["row.committed"][0] += 1
    with pytest.raises(LogCorrupt, match="digest"):
        Ledger.restore(POOLS["window"], FrozenState(arrays, state.meta, state.digest))


def test_a_state_of_other_pools_is_refused():
    """A snapshot of two groups does not fit a ledger of one."""
    ledger, _ = two_alike()
    other = PoolConfig(
        page_size=4, num_pages=20, max_requests=4, max_context_len=22, groups=(CacheGroup("full"),)
    )
    with pytest.raises(LogCorrupt, match="does not fit"):
        Ledger.restore(other, ledger.snapshot().freeze())
