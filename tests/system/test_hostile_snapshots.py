"""Snapshots that are forged with a digest that fits: refused, each for what is wrong with it."""

import msgspec
import numpy as np
import pytest
from small_runs import plan_of, writer_of

from kvlife.errors import LogCorrupt
from kvlife.ledger import FrozenState, Ledger, state_digest
from kvlife.log import open_run
from kvlife.simulation import simulate


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    """The configuration and a snapshot of a run with steps in flight and sessions."""
    path = tmp_path_factory.mktemp("run")
    simulate(plan_of(writer_of(path), kind=1, num_requests=40))
    run = open_run(path)
    return run.header.config, run.snapshot(run.snapshots[-1])


def set_first(name, value):
    """Give the first entry of a column another value."""

    def change(arrays, _books):
        arrays[name] = arrays[name].copy()
        arrays[name][0] = value

    return change


def put(name, value):
    """Give the books something else under a name."""

    def change(_arrays, books):
        books[name] = value

    return change


def twice_free(arrays, _books):
    arrays["free.0"] = arrays["free.0"].copy()
    arrays["free.0"][0] = arrays["page.0.idx"][0]


def one_for_all(arrays, _books):
    arrays["page.0.refs"] = arrays["page.0.refs"][:1]


def wider(arrays, _books):
    arrays["row.allocated"] = arrays["row.allocated"].astype(np.int64)


def more_pages(_arrays, books):
    books["spaces"] = [1 << 25]


FORGERIES = {
    "a page free and in use": (twice_free, "stands twice"),
    "more pages than are named": (more_pages, "pages in use and"),
    "one entry for all pages": (one_for_all, "has 1 entries for"),
    "lengths of 64 bits": (wider, "holds int64"),
    "a page that is not there": (set_first("table.0", 1 << 20), "a page of group 0 is 1048576"),
    "negative refs": (set_first("page.0.refs", -1), "the refs of a page is -1"),
    "a free page in use": (set_first("page.0.state", 0), "the state of a page in use is 0"),
    "a base behind the seqs": (put("seq_base", 1 << 31), "the base of the seqs"),
    "a pin of a page beyond": (
        put("pins", [["p", "copy", False, None, 0, [1 << 40], 1]]),
        "a page of group 0 is 1099511627776",
    ),
    "a pin of no group": (put("pins", [["p", "copy", False, None, 9, [1], 1]]), "a group is 9"),
    "a step of a row beyond": (put("steps", [[1, [999], [4], 1, []]]), "a row of step 1 is 999"),
    "a step that names a row twice": (put("steps", [[1, [2, 2], [4, 4], 1, []]]), "names 2 rows"),
    "a session on a row beyond": (
        put("sessions", [["s", -3, None, 0, 0, 1, 1]]),
        "the row of session 's' is -3",
    ),
    "books of another form": (put("holders", 3), "Expected"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_snapshot_is_refused(taken, name):
    """A state that no run can be in is no state to start from, and the error says why."""
    config, state = taken
    change, said = FORGERIES[name]
    arrays, books = dict(state.arrays), msgspec.msgpack.decode(state.meta)
    change(arrays, books)
    meta = msgspec.msgpack.encode(books)
    forged = FrozenState(arrays, meta, state_digest(arrays, meta))
    with pytest.raises(LogCorrupt, match=said):
        Ledger.restore(config, forged)
    assert Ledger.restore(config, state).digest() == state.digest


def test_what_a_state_does_not_hold_is_refused(taken):
    """A column too many, under a digest that counts it in, is not passed over."""
    config, state = taken
    arrays = {**state.arrays, "page.9.key": np.zeros(3, np.uint64)}
    forged = FrozenState(arrays, state.meta, state_digest(arrays, state.meta))
    with pytest.raises(LogCorrupt, match="more than a state"):
        Ledger.restore(config, forged)
