"""Streaming sessions in the loop: turns that go on where the last one ended."""

import numpy as np
from loop_runs import run_loop, tokens, workload_of

from kvlife.events import (
    Admitted,
    Released,
    Retracted,
    SessionClosed,
    SessionRestored,
    SessionSaved,
)
from kvlife.simulation import SchedulerConfig, Turns

SECOND = 1_000_000_000


def sessions(**options):
    return SchedulerConfig(
        **{
            "headroom_tokens": 0,
            "session_rate": 1.0,
            "rewind_rate": 0.0,
            "close_rate": 0.0,
            "session_idle_ns": 10_000 * SECOND,
            **options,
        }
    )


def conversation(second_arrival_ns, num_turns=2):
    """Turns with an answer of 3: each prompt is all that was said before, and 4 new tokens."""
    said, requests = tokens(0, 6), []
    for turn in range(num_turns):
        requests.append((turn * second_arrival_ns, said, 3))
        answer = tokens(1_000_000 * (turn + 1), 3)
        said = np.concatenate((said, answer, tokens(100 * (turn + 1), 4)))
    turns = Turns(
        conversation_idx=np.zeros(num_turns, np.int32),
        turn_idx=np.arange(num_turns, dtype=np.int32),
    )
    return workload_of(*requests, turns=turns)


def test_a_turn_goes_on_on_the_sessions_row():
    """Of 13 tokens the second turn finds the 8 that were confirmed; 5 are computed."""
    run = run_loop(conversation(SECOND), sessions())
    assert [event.kept_len for event in run.of(SessionSaved)] == [8, 15]
    restored = run.of(SessionRestored)[0]
    assert (restored.kept_len, restored.prompt_len) == (8, 13)
    assert len(run.of(Admitted)) == 1
    assert len(run.of(Released)) == 0
    tally = run.tally
    assert (tally.sessions, tally.session_turns, tally.session_tokens) == (1, 1, 8)
    assert tally.prefill_tokens == 6 + 5


def test_a_turn_waits_for_the_one_before():
    """The second turn arrives while the first runs, and begins when that is saved."""
    run = run_loop(conversation(1), sessions())
    names = [type(e).__name__ for e in run.of(Admitted, SessionSaved, SessionRestored)]
    assert names == ["Admitted", "SessionSaved", "SessionRestored", "SessionSaved"]
    assert run.tally.completed == 2


def test_a_client_may_rewind():
    """A turn that goes back further keeps less than the common part, and computes the rest."""
    run = run_loop(conversation(SECOND), sessions(rewind_rate=1.0))
    kept = run.of(SessionRestored)[0].kept_len
    assert kept < 8
    assert run.tally.rewinds == 1
    assert run.tally.prefill_tokens == 6 + 13 - kept


def test_what_differs_from_the_last_turn_is_not_kept():
    """A second turn that repeats only the first 5 tokens keeps page [0, 4), which is published."""
    prompts = tokens(0, 8), np.concatenate((tokens(0, 5), tokens(500, 7)))
    turns = Turns(conversation_idx=np.zeros(2, np.int32), turn_idx=np.arange(2, dtype=np.int32))
    workload = workload_of((0, prompts[0], 3), (SECOND, prompts[1], 2), turns=turns)
    run = run_loop(workload, sessions())
    assert run.of(SessionRestored)[0].kept_len == 4


def test_an_idle_session_is_closed_by_its_client():
    """It is closed in the middle of the run, when its time is over, and not at the end."""
    workload = workload_of((0, tokens(0, 6), 3), (10_000 * SECOND, tokens(50, 6), 3))
    run = run_loop(workload, sessions(session_idle_ns=SECOND))
    names = [type(event).__name__ for event in run.of(SessionClosed, Admitted)]
    assert names == ["Admitted", "SessionClosed", "Admitted", "SessionClosed"]
    assert run.tally.sessions_closed == 2


def test_a_session_closed_in_a_turn_goes_with_its_request():
    """The client leaves in the second turn: the session is forgotten, the request finishes."""
    said = tokens(0, 6)
    longer = np.concatenate((said, tokens(1_000_000, 3), tokens(100, 4)))
    turns = Turns(conversation_idx=np.zeros(2, np.int32), turn_idx=np.arange(2, dtype=np.int32))
    # The second turn decodes for 8 s; the client stays for a second in the mean.
    workload = workload_of((0, said, 3), (SECOND, longer, 1_000), turns=turns)
    run = run_loop(workload, sessions(close_rate=1.0), num_pages=300)
    closed = run.of(SessionClosed)
    assert [event.row for event in closed] == [None]
    assert [event.rid for event in run.of(Released)] == ["r1"]
    assert run.tally.completed == 2


def test_a_retracted_turn_loses_the_sessions_row():
    """Its next turn is a first turn again: admitted, and saved under the same session."""
    said = tokens(0, 4)
    longer = np.concatenate((said, tokens(2_000_000, 2), tokens(100, 2)))
    turns = Turns(
        conversation_idx=np.array([0, 1, 1], np.int32), turn_idx=np.array([0, 0, 1], np.int32)
    )
    # r0 grows to 20 tokens; r1, then r2 on its row, are younger. 27 pages of one token.
    workload = workload_of((0, tokens(500, 4), 17), (1, said, 2), (2, longer, 10), turns=turns)
    config = sessions()
    run = run_loop(workload, config, page_size=1, num_pages=26)
    retracted = run.of(Retracted)
    assert [event.rid for event in retracted] == ["r2"]
    resumed_at = run.names().index("Resumed")
    saved = [event for event in run.events[resumed_at:] if isinstance(event, SessionSaved)]
    assert "s1" in [event.session_id for event in saved]
    assert run.tally.completed == 3
