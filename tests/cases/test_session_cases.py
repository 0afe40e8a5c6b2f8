"""Streaming sessions: C36, C38, C40."""

import pytest
from scenes import (
    admitted,
    allocated,
    broken_by,
    committed,
    ends_clean,
    in_state,
    ladder,
    prefill,
    refused,
    restored,
    rolled_back,
    row_pages,
    run_engine,
    saved,
    tell,
    watch,
)

from kvlife.errors import BadLength, DuplicateRequest, OutOfPages

TURN = list(range(100))


def session_of_100():
    """S1 of C36 and C40: one row, ladder 0/100/100, pages 1-100."""
    observer = watch(1, 200)
    tell(
        observer,
        admitted("r1", 1, 100),
        allocated({1: 100}, range(1, 101)),
        committed({1: 100}),
        saved("s1", "r1", 1, 100),
    )
    return observer


def test_c36_an_aborted_turn_overwrites_the_session():
    """C36: a turn of one token restarts the session's row at 0, and 100 pages lose their owner."""
    observer = session_of_100()
    tell(observer, restored("s1", "r2", 1, 100, 100))
    found = broken_by(observer, rolled_back(1, 0, 0, []))
    assert found.id == "refs-balance"
    assert found.evidence["num_pages"] == 100


def test_c36_the_restore_itself_forgets_the_pages():
    """C36: a restore to 0 tokens that lets no page go is named at the restore."""
    found = broken_by(session_of_100(), restored("s1", "r2", 1, 0, 1, []))
    assert found.id == "refs-balance"
    assert found.evidence["num_pages"] == 100


def test_c36_an_extend_to_one_token_shrinks_the_ladder():
    """C36: the extend written as an allocation of one token puts allocated below committed."""
    observer = session_of_100()
    tell(observer, restored("s1", "r2", 1, 100, 100))
    found = broken_by(observer, allocated({1: 1}, [101]))
    assert found.id == "ladder-order"


def test_c36_a_turn_marked_for_abort_never_borrows_the_session():
    """C36: an aborted turn is refused the row, and the session stays as it was."""
    engine = run_engine(1, 200)
    prefill(engine, "r1", TURN)
    engine.session_save("s1", "r1", 100)
    engine.abort("r2")
    with refused(engine, DuplicateRequest, "aborted before its turn"):
        engine.session_restore("s1", "r2", 0)
    assert engine.ledger.sessions["s1"].kept_len == 100
    engine.session_restore("s1", "r3", 100)
    assert row_pages(engine, "r3") == list(range(1, 101))
    engine.session_save("s1", "r3", 100)
    engine.session_close("s1")
    assert in_state(engine, "FREE") == set(range(1, 201))
    ends_clean(engine)


def test_c36_a_turn_aborted_in_the_middle_takes_the_session_whole():
    """C36: an abort within a turn leaves no page of the session without owner."""
    engine = run_engine(1, 200)
    prefill(engine, "r1", TURN)
    engine.session_save("s1", "r1", 100)
    engine.session_restore("s1", "r2", 100)
    engine.allocate(["r2"], [120])
    engine.abort("r2")
    assert in_state(engine, "FREE") == set(range(1, 201))
    assert engine.ledger.sessions == {}
    ends_clean(engine)


def beyond_the_stop():
    """R1 of C38: prompt 10, 16 tokens committed, where 10 + 5 - 1 = 14 were wanted."""
    observer = watch(1, 40)
    tell(
        observer,
        admitted("r1", 1, 10),
        allocated({1: 10}, range(1, 11)),
        committed({1: 10}),
        allocated({1: 18}, range(11, 19)),
        committed({1: 12}),
        committed({1: 16}),
    )
    return observer


def test_c38_a_session_is_saved_beyond_the_stop():
    """C38: a session is saved with 16 tokens committed, where the client has seen 14.

    The save says what the client has seen, and committed must equal it; where the stop lies is no
    matter of memory, so an event that claims 16 on both sides is consistent.
    """
    found = broken_by(beyond_the_stop(), saved("s1", "r1", 1, 14, [15, 16, 17, 18]))
    assert found.id == "settled-bound"
    assert found.evidence["committed_before"] == [16]
    assert found.evidence["kept_len"] == 14


def test_c38_trimmed_to_the_stop_first_the_save_is_sound():
    """C38: a roll-back to 14 that frees the rest, and then the save, raise no alarm."""
    observer = beyond_the_stop()
    tell(observer, rolled_back(1, 14, 14, [15, 16, 17, 18]), saved("s1", "r1", 1, 14))
    assert in_state(observer, "PRIVATE") == set(range(1, 15))


def test_c38_finish_trims_to_the_stop():
    """C38: the save cuts 16 tokens and the reserve to 14, and turn 2 begins at position 14."""
    engine = run_engine(1, 40)
    prefill(engine, "r1", list(range(10)))
    engine.allocate(["r1"], [18])
    engine.commit(["r1"], [12])
    engine.commit(["r1"], [16])
    with refused(engine, BadLength, "committed of 'r1'"):
        engine.session_save("s1", "r1", 17)
    engine.session_save("s1", "r1", 14)
    assert in_state(engine, "PRIVATE") == set(range(1, 15))
    assert engine.session_restore("s1", "r2", 14).kept_len == 14
    assert ladder(engine, "r2") == (0, 14, 14)
    # The answer's last token has no KV yet: it takes position 14, and turn 2's first 15.
    engine.allocate(["r2"], [16])
    assert engine.slots(["r2"], [14], [16], "full").tolist() == row_pages(engine, "r2")[14:]
    engine.abort("r2")
    ends_clean(engine)


def test_c40_lending_a_session_raises_no_alarm():
    """C40: 100 pages lent by a session to its turn are one owner's, and nothing is reported."""
    observer = session_of_100()
    tell(observer, restored("s1", "r2", 1, 100, 120))
    tell(observer, allocated({1: 120}, range(101, 121)), committed({1: 120}))
    tell(observer, saved("s1", "r2", 1, 120))
    assert observer.stats().violations == {}
    assert observer.stats().checked["events"] == 8


def test_c40_lent_pages_count_once():
    """C40: while a turn runs, its 100 pages count for the request and not for the session too."""
    engine = run_engine(1, 120)
    prefill(engine, "r1", TURN)
    engine.session_save("s1", "r1", 100)
    engine.session_restore("s1", "r2", 100)
    assert engine.audit() == []
    pages = engine.stats().pages["full"]
    assert (pages["PRIVATE"], pages["FREE"]) == (100, 20)
    prefill(engine, "r3", [7, 8])
    with pytest.raises(OutOfPages) as refusal:
        engine.allocate(["r3"], [50])
    assert refusal.value.held == {"r2": 100, "r3": 2}
    assert refusal.value.free == 18
    engine.session_save("s1", "r2", 100)
    engine.abort("r3")
    engine.session_close("s1")
    ends_clean(engine)
