"""Chunked and mixed prefill: C15, C17."""

from scenes import (
    admitted,
    allocated,
    broken_by,
    committed,
    dispatched,
    ends_clean,
    in_state,
    ladder,
    refused,
    released,
    run_engine,
    settled,
    tell,
    watch,
)

from kvlife.errors import BadLength
from kvlife.events import Marked

PROMPT = list(range(16))


def two_chunks_settled():
    """R1 of C15: 2 of 4 chunks are sent, and their results are in."""
    observer = watch(4, 8)
    tell(
        observer,
        admitted("r1", 1, 16),
        allocated({1: 4}, [1]),
        dispatched(1, 1),
        allocated({1: 8}, [2]),
        dispatched(2, 1),
        settled(1),
        committed({1: 4}),
        settled(2),
        committed({1: 8}),
    )
    return observer


def test_c15_finished_in_the_middle_of_the_prompt():
    """C15: a miscounted chunk result finishes R1 with 8 of its 16 prompt tokens committed."""
    found = broken_by(two_chunks_settled(), released("r1", 1, "finished", [1, 2]))
    assert found.id == "settled-bound"
    assert found.evidence == {"rid": "r1", "committed_len": 8, "prompt_len": 16}


def test_c15_finished_while_the_next_chunk_is_in_flight():
    """C15: with chunk 3 pending as well, the early finish is named all the same."""
    observer = two_chunks_settled()
    tell(observer, allocated({1: 12}, [3]), dispatched(3, 1))
    found = broken_by(observer, released("r1", 1, "finished", []))
    assert found.id == "settled-bound"


def send_chunk(engine, step):
    """Schedule and dispatch the chunk of 4 tokens that this step computes."""
    engine.allocate(["r1"], [4 * step])
    engine.dispatch(step, ["r1"])


def test_c15_finish_waits_for_the_whole_prompt():
    """C15: finish is refused until all four chunks are committed, and then publishes 16 tokens."""
    engine = run_engine(4, 8)
    engine.admit("r1", PROMPT)
    send_chunk(engine, 1)
    send_chunk(engine, 2)
    for step in (1, 2, 3):
        engine.settle(step)
        engine.commit(["r1"])
        assert ladder(engine, "r1")[1] == 4 * step
        with refused(engine, BadLength, f"{4 * step} of 16 prompt tokens"):
            engine.finish("r1", PROMPT)
        if step < 3:
            send_chunk(engine, step + 2)
    engine.settle(4)
    engine.commit(["r1"])
    assert engine.finish("r1", PROMPT) == 16
    assert in_state(engine, "CACHED") == {1, 2, 3, 4}
    ends_clean(engine)


def aborted_in_flight():
    """R1 of C17, its chunk of 256 pages in flight, aborted: it drains."""
    observer = watch(64, 300, capacity=16384)
    tell(
        observer,
        admitted("r1", 1, 16384),
        allocated({1: 16384}, range(1, 257)),
        dispatched(1, 1),
        released("r1", 1, "aborted", []),
    )
    return observer


def test_c17_the_late_result_is_dropped():
    """C17: the result of an aborted request's chunk is thrown away, and nobody frees its 256 pages.

    The report's three state slots are left out: groups of state slots are not built yet.
    """
    found = broken_by(aborted_in_flight(), settled(1))
    assert found.id == "in-flight-fence"


def test_c17_the_result_frees_a_part():
    """C17: a late result that frees all but the last page leaves page 256 without owner."""
    found = broken_by(aborted_in_flight(), settled(1, [1], range(1, 256)))
    assert found.id == "refs-balance"
    assert found.evidence["pages"] == [256]


def test_c17_no_release_at_all():
    """C17: where neither abort nor result releases, an idle mark names the row."""
    observer = watch(64, 300, capacity=16384)
    tell(
        observer,
        admitted("r1", 1, 16384),
        allocated({1: 16384}, range(1, 257)),
        dispatched(1, 1),
        settled(1),
    )
    found = broken_by(observer, Marked("idle", idle=True))
    assert found.id == "idle-no-leak"
    assert found.evidence["holders"] == ["request r1"]


def test_c17_the_last_result_releases_once():
    """C17: an aborted request drains, waits for its second chunk as well, and publishes nothing."""
    engine = run_engine(64, 300, capacity=32768)
    engine.admit("r1", [5] * 16384)
    engine.allocate(["r1"], [8192])
    engine.dispatch(1, ["r1"])
    engine.allocate(["r1"], [16384])
    engine.dispatch(2, ["r1"])
    engine.abort("r1")
    assert len(in_state(engine, "PRIVATE")) == 256
    engine.settle(1)
    assert len(in_state(engine, "PRIVATE")) == 256
    engine.settle(2)
    assert in_state(engine, "FREE") == set(range(1, 301))
    assert engine.stats().rows["DRAINING"] == 0
    ends_clean(engine)
