"""Arguments of types that nobody should give: refused, or taken for what they stand for."""

import enum

import numpy as np
import pytest

from kvlife import KvEngine, LogWriter, PoolConfig
from kvlife.config import ledger_bytes
from kvlife.errors import (
    BadArgument,
    BadLength,
    BadTokens,
    CommandRefused,
    PinRefused,
    StaleBatch,
    UnknownRequest,
    UnknownSession,
)
from kvlife.log import open_run
from kvlife.replay.replaying.session import Settings, replay_run

PROMPT = list(range(10))
CONFIG = PoolConfig(page_size=4, num_pages=12, max_requests=3, max_context_len=32)


class Broken:
    """What looks like an array, and is none."""

    def __array__(self, *_options, **_more):
        raise KeyError("broken")


class Name(enum.StrEnum):
    """Ids as an enumeration of strings."""

    ONE = "one"


@pytest.fixture
def engine(tmp_path):
    """r1 has its prompt committed and runs in step 5; page 1 is pinned by p1."""
    with KvEngine(CONFIG, log=LogWriter(tmp_path), key_seed=1, clock=lambda: 0) as made:
        made.admit("r1", PROMPT)
        made.allocate(["r1"], [10])
        made.commit(["r1"])
        made.dispatch(5, ["r1"])
        made.pin("p1", [1], "copy")
        yield made


ODD = [
    ("batch of lists", lambda e: e.batch([["r1"]]), UnknownRequest, "['r1']"),
    ("protect a list", lambda e: e.protect(["r1"], PROMPT), UnknownRequest, "['r1']"),
    ("retract a dict", lambda e: e.retract({}), UnknownRequest, "{}"),
    ("record a list", lambda e: e.record([]), UnknownRequest, "[]"),
    ("close a list", lambda e: e.session_close([]), UnknownSession, "[]"),
    ("unpin a list", lambda e: e.unpin([]), PinRefused, "[]"),
    ("owner a list", lambda e: e.pin("p2", [1], "copy", owner=[]), BadArgument, "owner"),
    ("writes a list", lambda e: e.pin("p2", [1], "copy", writes=[1]), BadArgument, "writes"),
    ("pages ragged", lambda e: e.pin("p2", [[1], [1, 2]], "copy"), PinRefused, "pages"),
    ("space a list", lambda e: e.resize(20, []), BadArgument, "[]"),
    ("group an array", lambda e: e.evict(1, np.ones(2)), BadArgument, "full"),
    ("surrogate", lambda e: e.admit("r4", [1], namespace="\ud800"), BadArgument, "namespace"),
    ("settle a float", lambda e: e.settle(5.0), BadLength, "5.0"),
    ("settle an array", lambda e: e.settle(np.array([5])), BadLength, "step"),
    ("draft", lambda e: e.tokens_required_next_decode(["r1"], "1"), BadLength, "draft"),
    ("required", lambda e: e.pages_required(["r1"], -1), BadLength, "num_tokens"),
    ("tokens that raise", lambda e: e.admit("r4", Broken()), BadTokens, "Broken"),
    ("lens that raise", lambda e: e.allocate(["r1"], Broken()), BadLength, "lens"),
    ("resize beyond all", lambda e: e.resize(1 << 27), BadLength, "num_pages"),
]


@pytest.mark.parametrize(
    ("call", "error", "word"), [pytest.param(*case[1:], id=case[0]) for case in ODD]
)
def test_odd_arguments_are_refused(engine, call, error, word):
    """Not even what cannot be hashed or compared gets past the checks."""
    before = (engine.ledger.digest(), engine.next_seq)
    with pytest.raises(error) as caught:
        call(engine)
    assert type(caught.value) is error
    assert word in str(caught.value)
    assert (engine.ledger.digest(), engine.next_seq) == before
    assert not engine.closed


def test_a_posted_unpin_of_what_is_no_id_is_only_counted(engine):
    """The thread that posts it is gone when it is looked at."""
    engine.post_unpin([])
    engine.match(PROMPT)
    assert engine.stats().refusals == {"PinRefused": 1}


def test_numbers_and_names_of_numpy_stand_for_themselves(tmp_path):
    """Whatever comes out of an array can be written, hashed and replayed."""
    engine = KvEngine(CONFIG, log=LogWriter(tmp_path), key_seed=1, clock=lambda: 0)
    first, second = np.array(["r1", "r2"])
    engine.admit(first, PROMPT, evict_floor=np.uint8(0))
    engine.admit(second, [3])
    engine.admit(Name.ONE, [4])
    engine.allocate([first], np.array([10], np.uint64))
    engine.commit([first])
    engine.dispatch(np.int64(3), [first])
    engine.pin(np.str_("p"), np.array([1], np.uint8), np.str_("copy"), owner=first)
    engine.settle(np.uint8(3))
    engine.session_save(np.str_("s"), first, np.uint8(9))
    engine.session_restore(np.str_("s"), np.str_("r3"), np.uint8(7), prompt_len=np.int16(9))
    engine.retract(second)
    engine.resize(np.uint64(20))
    assert engine.ledger.rows.committed[1] == 7
    names = [*engine.ledger.requests, *engine.ledger.waiting]
    assert {type(name) for name in names} == {str}
    engine.close()
    outcome = replay_run(open_run(tmp_path), Settings())
    assert (outcome.found, outcome.differences, outcome.digest_ok) == ((), (), True)


def test_a_batch_of_another_engine_is_refused(engine):
    """Its rows are other requests here, whatever the generations say."""
    other = KvEngine(CONFIG)
    other.admit("r1", PROMPT)
    batch = other.batch(["r1"])
    with pytest.raises(StaleBatch, match="another engine"):
        engine.decode(batch)
    assert other.decode(batch).tolist() == [4]


def test_pools_do_not_grow_beyond_memory(engine, monkeypatch):
    """The resize is refused before anything of it is in the log."""
    before = (engine.ledger.digest(), engine.next_seq)
    room = ledger_bytes(engine.ledger.layout)
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": room + 64}.get)
    with pytest.raises(CommandRefused, match=r"GiB.*lower num_pages"):
        engine.resize(16)
    assert (engine.ledger.digest(), engine.next_seq) == before
    engine.resize(14)


def test_namespaces_of_requests_that_are_gone_are_forgotten():
    """Each user may have a salt of their own, and there is no end of users."""
    with KvEngine(CONFIG, key_seed=1) as engine:
        engine.admit("kept", PROMPT, namespace="first")
        engine.admit("waits", PROMPT, namespace="second")
        engine.retract("waits")
        for number in range(3000):
            engine.admit("r", PROMPT, namespace=f"user {number}")
            engine.abort("r")
        assert len(engine._namespaces) < 2000
        for rid in ("kept", "waits"):
            if rid == "waits":
                engine.resume(rid, PROMPT)
            engine.allocate([rid], [10])
            engine.commit([rid])
            engine.finish(rid, PROMPT)
        found = {
            name: engine.match(PROMPT, namespace=name).matched_len for name in ("first", "second")
        }
        assert found == {"first": 8, "second": 8}
        assert engine.match(PROMPT).matched_len == 0
