"""Bad input: each a clear error that says what and where; nothing changes, the log included."""

import os
import threading

import numpy as np
import pytest

from kvlife import CacheGroup, ConfigError, KvEngine, LogWriter, PoolConfig
from kvlife.errors import (
    BadArgument,
    BadLength,
    BadTokens,
    CommandRefused,
    DuplicateRequest,
    EngineClosed,
    OutOfPages,
    OutOfRows,
    PinRefused,
    SessionBusy,
    StaleBatch,
    StepOrder,
    UnknownRequest,
    UnknownSession,
    WrongThread,
)
from kvlife.events import Evicted

PROMPT = list(range(10))
FACT = Evicted("flush", (np.array([2], np.int32), np.empty(0, np.int32)))


@pytest.fixture
def engine(tmp_path):
    """Pages of 4, rows of 32 tokens, a window of 6 beside; r1 runs, r2 waits, s1 is idle.

    r1 has 8 of its 10 tokens published, 10 committed and 12 allocated; page 1 is pinned by p1.
    """
    config = PoolConfig(
        page_size=4,
        num_pages=12,
        max_requests=3,
        max_context_len=32,
        groups=(CacheGroup("full"), CacheGroup("swa", window=6)),
    )
    made = KvEngine(config, log=LogWriter(tmp_path), key_seed=1, clock=lambda: 0)
    made.admit("r1", PROMPT)
    made.allocate(["r1"], [12])
    made.commit(["r1"], [10])
    made.protect("r1", PROMPT)
    made.admit("r2", [7])
    made.retract("r2")
    made.admit("r3", [9])
    made.session_save("s1", "r3", 0)
    made.dispatch(5, ["r1"])
    made.pin("p1", [1], "copy")
    yield made
    if not made.closed:
        made.close()


def _files(tmp_path):
    """The files of the log; spare ones are made ready in the background, and hold nothing."""
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".tmp"]
    return {path: path.read_bytes() for path in files}


def _all_of(engine, tmp_path):
    """What a refused command must not change: state, seq, and every byte of the log."""
    state = (engine.ledger.digest(), engine.next_seq, engine.step, engine.log.log_bytes)
    return state, engine.index.num_pages, _files(tmp_path)


def check_refused(engine, tmp_path, call, error, *words):
    before, refused = _all_of(engine, tmp_path), sum(engine.stats().refusals.values())
    with pytest.raises(error) as caught:
        call(engine)
    assert type(caught.value) is error
    for word in words:
        assert word in str(caught.value)
    assert _all_of(engine, tmp_path) == before
    assert sum(engine.stats().refusals.values()) == refused + 1
    assert engine.audit() == []


IDS = [
    ("observe", lambda e: e.observe(FACT), BadArgument, ["Evicted", "Observer"]),
    ("admit live", lambda e: e.admit("r1", [1]), DuplicateRequest, ["'r1'", "live"]),
    ("admit waiting", lambda e: e.admit("r2", [1]), DuplicateRequest, ["'r2'", "resume"]),
    ("admit empty id", lambda e: e.admit("", [1]), BadArgument, ["request id"]),
    ("admit int id", lambda e: e.admit(5, [1]), BadArgument, ["request id", "5"]),
    ("resume unknown", lambda e: e.resume("x", [1]), BadArgument, ["'x'", "retracted"]),
    ("resume live", lambda e: e.resume("r1", [1]), DuplicateRequest, ["'r1'"]),
    ("allocate unknown", lambda e: e.allocate(["x"], [1]), UnknownRequest, ["'x'", "admit"]),
    ("allocate waiting", lambda e: e.allocate(["r2"], [1]), UnknownRequest, ["'r2'", "resume"]),
    ("allocate twice", lambda e: e.allocate(["r1", "r1"], [13, 14]), BadArgument, ["twice"]),
    ("one name for a batch", lambda e: e.batch("r1"), BadArgument, ["'r1'", "list"]),
    ("an id that is a number", lambda e: e.batch([3]), UnknownRequest, ["3"]),
    ("batch empty", lambda e: e.batch([]), BadArgument, ["empty batch"]),
    ("commit empty", lambda e: e.commit([]), BadArgument, ["empty batch"]),
    ("dispatch empty", lambda e: e.dispatch(9, []), BadArgument, ["empty batch"]),
    ("protect unknown", lambda e: e.protect("x", [1]), UnknownRequest, ["'x'"]),
    ("finish unknown", lambda e: e.finish("x", [1]), UnknownRequest, ["'x'"]),
    ("retract twice", lambda e: e.retract("r2"), UnknownRequest, ["'r2'", "waits"]),
    ("abort no id", lambda e: e.abort(""), BadArgument, ["request id"]),
    ("record unknown", lambda e: e.record("x"), UnknownRequest, ["'x'"]),
    ("save unknown", lambda e: e.session_save("s2", "x", 0), UnknownRequest, ["'x'"]),
    ("save on another", lambda e: e.session_save("s1", "r1", 8), SessionBusy, ["'s1'"]),
    ("save no id", lambda e: e.session_save("", "r1", 8), BadArgument, ["session id"]),
    ("restore unknown", lambda e: e.session_restore("x", "r4", 0), UnknownSession, ["'x'", "'s1'"]),
    ("restore live", lambda e: e.session_restore("s1", "r1", 0), DuplicateRequest, ["'r1'"]),
    ("close unknown", lambda e: e.session_close("x"), UnknownSession, ["'x'"]),
    ("evict unknown group", lambda e: e.evict(1, "x"), BadArgument, ["'x'", "full, swa"]),
    ("resize unknown space", lambda e: e.resize(9, "x"), BadArgument, ["'x'", "full, swa"]),
    ("namespace", lambda e: e.admit("r4", [1], namespace=4), BadArgument, ["namespace", "4"]),
]

LENGTHS = [
    ("shrink", lambda e: e.allocate(["r1"], [11]), BadLength, ["'r1'", "11", "12"]),
    ("past capacity", lambda e: e.allocate(["r1"], [33]), BadLength, ["'r1'", "33", "32"]),
    ("negative", lambda e: e.allocate(["r1"], [-1]), BadLength, ["lens", "-1"]),
    ("2^31", lambda e: e.allocate(["r1"], [1 << 31]), BadLength, ["lens", "2^31"]),
    ("too few", lambda e: e.allocate(["r1"], []), BadLength, ["lens"]),
    ("too many", lambda e: e.allocate(["r1"], [13, 14]), BadLength, ["2 entries for 1"]),
    ("floats", lambda e: e.allocate(["r1"], [13.0]), BadLength, ["whole numbers"]),
    ("bools", lambda e: e.allocate(["r1"], [True]), BadLength, ["whole numbers"]),
    ("text", lambda e: e.allocate(["r1"], ["13"]), BadLength, ["whole numbers"]),
    ("no list", lambda e: e.allocate(["r1"], 13), BadLength, ["13"]),
    ("ragged", lambda e: e.allocate(["r1"], [[13], [1, 2]]), BadLength, ["lens"]),
    ("2-D", lambda e: e.allocate(["r1"], [[13]]), BadLength, ["whole numbers"]),
    ("commit shrinks", lambda e: e.commit(["r1"], [9]), BadLength, ["'r1'", "9", "10"]),
    ("commit unsettled", lambda e: e.commit(["r1"], [11]), BadLength, ["11", "settled"]),
    ("commit past", lambda e: e.commit(["r1"], [13]), BadLength, ["'r1'", "13"]),
    ("roll back published", lambda e: e.roll_back(["r1"], [7]), BadLength, ["7", "8"]),
    ("roll back up", lambda e: e.roll_back(["r1"], [13]), BadLength, ["13", "12"]),
    (
        "roll back crossed",
        lambda e: e.roll_back(["r1"], [10], allocated_lens=[9]),
        BadLength,
        ["10", "9"],
    ),
    (
        "skip held window",
        lambda e: e.allocate(["r1"], [30], window_start_lens=[20]),
        BadLength,
        ["'r1'", "skip"],
    ),
    ("floor negative", lambda e: e.admit("r4", [1], evict_floor=-1), BadLength, ["evict_floor"]),
    ("floor past", lambda e: e.admit("r4", [1], evict_floor=33), BadLength, ["evict_floor", "32"]),
    ("floor float", lambda e: e.admit("r4", [1], evict_floor=1.5), BadLength, ["evict_floor"]),
    ("match floor", lambda e: e.match([1], evict_floor=-1), BadLength, ["evict_floor"]),
    ("prompt past", lambda e: e.admit("r4", range(33)), BadTokens, ["range"]),
    ("long prompt", lambda e: e.admit("r4", [1] * 33), BadLength, ["'r4'", "33", "32"]),
    ("keep negative", lambda e: e.finish("r1", PROMPT, keep_len=-1), BadLength, ["keep_len"]),
    ("keep bool", lambda e: e.finish("r1", PROMPT, keep_len=True), BadLength, ["keep_len"]),
    ("keep float", lambda e: e.finish("r1", PROMPT, keep_len=8.0), BadLength, ["keep_len"]),
    ("save too much", lambda e: e.session_save("s2", "r1", 11), BadLength, ["'r1'", "11", "10"]),
    ("save too little", lambda e: e.session_save("s2", "r1", 7), BadLength, ["7", "8"]),
    ("save float", lambda e: e.session_save("s2", "r1", 9.5), BadLength, ["9.5"]),
    ("restore past", lambda e: e.session_restore("s1", "r4", 1), BadLength, ["1"]),
    ("restore text", lambda e: e.session_restore("s1", "r4", "0"), BadLength, ["'0'"]),
    (
        "restore prompt",
        lambda e: e.session_restore("s1", "r4", 0, prompt_len=33),
        BadLength,
        ["prompt_len", "32"],
    ),
    ("evict negative", lambda e: e.evict(-1), BadLength, ["-1"]),
    ("evict float", lambda e: e.evict(1.0), BadLength, ["1.0"]),
    ("resize to one", lambda e: e.resize(1), BadLength, ["1"]),
    ("resize float", lambda e: e.resize(20.0), BadLength, ["20.0"]),
    ("resize used", lambda e: e.resize(2), CommandRefused, ["cannot shrink to 2", "page"]),
    ("slots past", lambda e: e.slots(["r1"], [0], [13], "full"), BadLength, ["'r1'", "12"]),
]

TOKENS = [
    ("empty", lambda e: e.admit("r4", []), BadTokens, ["'r4'", "empty"]),
    ("negative", lambda e: e.admit("r4", [1, -1]), BadTokens, ["token 1", "-1"]),
    ("2^31", lambda e: e.admit("r4", [1 << 31]), BadTokens, ["token 0", "2147483648"]),
    ("2^70", lambda e: e.admit("r4", [3, 1 << 70]), BadTokens, ["token 1"]),
    ("floats", lambda e: e.admit("r4", [1.0]), BadTokens, ["token 0", "float"]),
    ("float array", lambda e: e.admit("r4", np.ones(3)), BadTokens, ["float64"]),
    ("bools", lambda e: e.admit("r4", [True]), BadTokens, ["token 0", "bool"]),
    ("bool array", lambda e: e.admit("r4", np.ones(3, bool)), BadTokens, ["bool"]),
    ("2-D", lambda e: e.admit("r4", np.ones((2, 3), np.int32)), BadTokens, ["(2, 3)"]),
    ("0-D", lambda e: e.admit("r4", np.array(3)), BadTokens, ["()"]),
    ("text", lambda e: e.admit("r4", "abc"), BadTokens, ["str"]),
    ("none", lambda e: e.admit("r4", None), BadTokens, ["NoneType"]),
    ("match", lambda e: e.match([-1]), BadTokens, ["token 0"]),
    ("resume empty", lambda e: e.resume("r2", []), BadTokens, ["'r2'", "empty"]),
    ("protect short", lambda e: e.protect("r1", PROMPT[:7]), BadTokens, ["'r1'", "8", "7"]),
    ("protect others", lambda e: e.protect("r1", [5, *PROMPT[1:]]), BadTokens, ["'r1'", "differ"]),
    ("finish others", lambda e: e.finish("r1", PROMPT[::-1]), BadTokens, ["'r1'", "differ"]),
    ("finish negative", lambda e: e.finish("r1", [-5] * 10), BadTokens, ["token 0"]),
]

FLIGHTS = [
    ("step again", lambda e: e.dispatch(5, ["r1"]), StepOrder, ["5"]),
    ("step back", lambda e: e.dispatch(4, ["r1"]), StepOrder, ["4", "5"]),
    ("step negative", lambda e: e.dispatch(-1, ["r1"]), BadLength, ["step", "-1"]),
    ("step float", lambda e: e.dispatch(6.0, ["r1"]), BadLength, ["step", "6.0"]),
    ("settle unknown", lambda e: e.settle(6), StepOrder, ["6", "5"]),
    ("pin id in use", lambda e: e.pin("p1", [1], "copy"), PinRefused, ["'p1'"]),
    ("pin nothing", lambda e: e.pin("p2", [], "copy"), PinRefused, ["pages"]),
    ("pin page 0", lambda e: e.pin("p2", [0], "copy"), PinRefused, ["[1, 12)"]),
    ("pin page 12", lambda e: e.pin("p2", [12], "copy"), PinRefused, ["[1, 12)"]),
    ("pin free", lambda e: e.pin("p2", [11], "copy"), PinRefused, ["page 11", "FREE"]),
    ("pin floats", lambda e: e.pin("p2", [1.0], "copy"), PinRefused, ["1.0"]),
    ("pin 2-D", lambda e: e.pin("p2", [[1]], "copy"), PinRefused, ["[[1]]"]),
    ("pin no kind", lambda e: e.pin("p2", [1], ""), BadArgument, ["kind"]),
    ("pin no owner", lambda e: e.pin("p2", [1], "copy", owner="x"), UnknownRequest, ["'x'"]),
    ("pin no group", lambda e: e.pin("p2", [1], "copy", group="x"), BadArgument, ["'x'"]),
    ("unpin unknown", lambda e: e.unpin("p2"), PinRefused, ["'p2'"]),
    ("flush busy", lambda e: e.flush(), CommandRefused, ["1 live requests", "1 pins"]),
]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [pytest.param(*case[1:], id=case[0]) for case in IDS + LENGTHS + TOKENS + FLIGHTS],
)
def test_bad_input_is_refused_and_changes_nothing(engine, tmp_path, call, error, words):
    """The error is of the right kind and names what was asked; state and log are as before."""
    check_refused(engine, tmp_path, call, error, *words)


def test_a_request_does_not_finish_before_its_prompt_is_committed(engine, tmp_path):
    """Aborting it is the way out; the error names what is missing."""
    engine.admit("r4", [1, 2, 3])
    check_refused(
        engine, tmp_path, lambda e: e.finish("r4", [1, 2, 3]), BadLength, "'r4'", "0 of 3"
    )


def test_numbers_of_numpy_are_numbers(engine):
    """Lengths that come out of arrays are taken as they are."""
    engine.settle(np.int64(5))
    engine.commit(["r1"], np.array([11], np.int64))
    assert engine.finish("r1", [*PROMPT, 3], keep_len=np.int32(8)) == 8


def test_a_stale_batch_names_the_request_that_changed_hands(engine, tmp_path):
    """A batch is refused in every command once one of its rows has gone to another request."""
    engine.admit("r4", [1, 2])
    batch = engine.batch(["r1", "r4"])
    engine.decode(batch)
    engine.abort("r4")
    for call in (
        lambda e: e.decode(batch),
        lambda e: e.commit(batch),
        lambda e: e.allocate(batch, [20, 20]),
        lambda e: e.roll_back(batch, [10, 0]),
        lambda e: e.evict_window(batch),
        lambda e: e.dispatch(9, batch),
        lambda e: e.slots(batch, [0, 0], [1, 1], "full"),
    ):
        check_refused(engine, tmp_path, call, StaleBatch, "'r4'", "make a new one")
    engine.admit("r4", [1, 2])
    check_refused(engine, tmp_path, lambda e: e.decode(batch), StaleBatch, "'r4'")


def test_rows_and_pages_run_out_with_a_reason(engine, tmp_path):
    """Three rows hold r1, the session and r4; of eleven pages r1 has three."""
    engine.admit("r4", list(range(20, 30)))
    check_refused(engine, tmp_path, lambda e: e.admit("r5", [1]), OutOfRows, "3 rows", "1 sessions")
    engine.allocate(["r4"], [32])
    check_refused(engine, tmp_path, lambda e: e.allocate(["r1"], [16]), OutOfPages, "0 free")
    with pytest.raises(OutOfPages) as caught:
        engine.allocate(["r1"], [20])
    assert (caught.value.group, caught.value.asked) == ("full", 2)
    assert (caught.value.free, caught.value.evictable) == (0, 0)
    assert caught.value.held == {"r1": 3, "r4": 8}


def test_an_aborted_id_is_refused_from_then_on(engine, tmp_path):
    """An id that was aborted before it was admitted is refused wherever it comes."""
    engine.abort("r9")
    check_refused(engine, tmp_path, lambda e: e.admit("r9", [1]), DuplicateRequest, "'r9'")
    check_refused(
        engine, tmp_path, lambda e: e.session_restore("s1", "r9", 0), DuplicateRequest, "'r9'"
    )
    check_refused(engine, tmp_path, lambda e: e.allocate(["r9"], [1]), UnknownRequest, "aborted")


def test_another_thread_is_refused(engine, tmp_path):
    """Every command from another thread is refused there; the log and the state stay."""
    calls = (
        lambda: engine.admit("r4", [1]),
        lambda: engine.match([1]),
        lambda: engine.decode(engine),
        lambda: engine.unpin("p1"),
        lambda: engine.mark("note"),
        engine.audit,
        engine.close,
    )
    before, caught = _all_of(engine, tmp_path), []

    def intrude():
        for call in calls:
            try:
                call()
            except WrongThread as error:
                caught.append(str(error))

    thread = threading.Thread(target=intrude)
    thread.start()
    thread.join()
    assert len(caught) == len(calls)
    assert all("post_unpin" in message for message in caught)
    assert _all_of(engine, tmp_path) == before
    engine.unpin("p1")


def test_a_forked_child_is_refused(engine, tmp_path):
    """A child reports through a pipe what its commands raised; the parent goes on."""
    before = _all_of(engine, tmp_path)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        # The child must not run the parent's tests or its exit: it says what it saw and is gone.
        try:
            engine.admit("r4", [1])
            said = "admitted"
        except WrongThread as error:
            said = str(error)
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert "parent process" in said
    assert _all_of(engine, tmp_path) == before
    engine.admit("r4", [1])


def test_post_unpin_may_come_from_any_thread(engine):
    """It takes effect before the next command, and one for a pin that is gone is only counted."""
    seq = engine.next_seq
    thread = threading.Thread(target=lambda: [engine.post_unpin("p1"), engine.post_unpin("x")])
    thread.start()
    thread.join()
    assert engine.next_seq == seq
    assert "p1" in engine.ledger.pins
    engine.match([1])
    assert engine.next_seq == seq + 1
    assert not engine.ledger.pins
    assert engine.stats().refusals == {"PinRefused": 1}


def test_a_posted_unpin_comes_before_an_idle_mark_and_the_end(tmp_path):
    """A mark and the closing are commands too: what was posted before them is done."""
    config = PoolConfig(page_size=4, num_pages=12, max_requests=3, max_context_len=32)
    with KvEngine(config, log=LogWriter(tmp_path), clock=lambda: 0) as engine:
        engine.admit("r", PROMPT)
        engine.allocate(["r"], [4])
        engine.pin("p", [1], "copy")
        engine.abort("r")
        engine.post_unpin("p")
        engine.mark("idle", idle=True)
        assert engine.num_free() == 11
        engine.admit("r2", PROMPT)
        engine.allocate(["r2"], [4])
        engine.pin("q", [1], "copy")
        engine.post_unpin("q")
    assert not engine.ledger.pins


def test_a_pool_larger_than_memory_is_refused_before_anything_is_written(tmp_path):
    """The error names what the ledger would take; no run is begun."""
    config = PoolConfig(
        page_size=1,
        num_pages=1 << 26,
        max_requests=1 << 20,
        max_context_len=(1 << 31) - 2,
    )
    with pytest.raises(ConfigError, match=r"GiB.*lower num_pages"):
        KvEngine(config, log=LogWriter(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_closed_engine_takes_no_more_commands(engine):
    """After the end every command says why; closing again is no error."""
    engine.close()
    engine.close()
    for call in (lambda: engine.match([1]), lambda: engine.mark("x"), engine.audit):
        with pytest.raises(EngineClosed, match="closed"):
            call()
