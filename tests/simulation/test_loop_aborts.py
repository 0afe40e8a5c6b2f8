"""Aborts at every stage of a request's life."""

import numpy as np
import pytest
from loop_runs import run_loop, tokens, workload_of

from kvlife.events import Admitted, Released, SessionRestored, StepSettled
from kvlife.simulation import SchedulerConfig, Turns
from kvlife.simulation.abort_plan import AbortPlan
from kvlife.simulation.request import Fate

ONE = workload_of((0, tokens(0, 9), 6))


@pytest.fixture
def doom(monkeypatch):
    """Lets every request, or those of some indices, meet a given fate."""

    def set_fate(fate, only=None):
        monkeypatch.setattr(
            AbortPlan, "fate", lambda _plan, idx: fate if only is None or idx in only else None
        )

    return set_fate


def test_an_abort_while_waiting_leaves_no_event(doom):
    """The request was never admitted, so there is nothing to release."""
    doom(Fate.WAITING)
    run = run_loop(ONE)
    assert run.names() == ["Marked"]
    assert run.tally.aborts == {"waiting": 1}


def test_an_abort_in_prefill(doom):
    """Its first chunk is scheduled and never confirmed."""
    doom(Fate.PREFILL)
    run = run_loop(ONE, SchedulerConfig(chunk_tokens=4))
    assert run.names() == ["Admitted", "Allocated", "Released", "Marked"]
    assert run.of(Released)[0].reason == "aborted"
    assert run.tally.aborts == {"prefill": 1}


def test_an_abort_in_decode_counts_what_was_generated(doom):
    """Some tokens are out, and what was published stays cached."""
    doom(Fate.DECODE)
    run = run_loop(ONE)
    assert run.tally.aborts == {"decode": 1}
    assert 1 <= run.tally.output_tokens <= 6
    assert run.engine.stats().pages["full"]["CACHED"] == 2


def test_an_abort_in_a_step_under_way_drains(doom):
    """Its row is in flight in two steps under overlap; the later one lets its pages go."""
    doom(Fate.FLIGHT)
    run = run_loop(ONE, SchedulerConfig(overlap=True))
    assert run.tally.aborts == {"in step": 1}
    released = run.of(Released)[0]
    assert released.reason == "aborted"
    assert released.pages[0].size == 0
    assert [event.drained.tolist() for event in run.of(StepSettled)][-1] == [released.row]


def test_an_abort_while_retracted(doom):
    """The second request gives way, and is aborted before it comes back: it has no row."""
    doom(Fate.RETRACTED, only={1})
    workload = workload_of((0, tokens(0, 4), 6), (0, tokens(100, 4), 6))
    run = run_loop(workload, page_size=1, num_pages=14)
    assert run.tally.aborts == {"retracted": 1}
    assert [(event.rid, event.row) for event in run.of(Released) if event.rid == "r1"] == [
        ("r1", None)
    ]
    assert run.tally.completed == 1


def test_a_turn_aborted_before_it_begins_never_borrows_the_row(doom):
    """The session's row is not restored for it, and stays with the session."""
    doom(Fate.WAITING, only={1})
    turns = Turns(conversation_idx=np.zeros(2, np.int32), turn_idx=np.arange(2, dtype=np.int32))
    longer = np.concatenate((tokens(0, 6), tokens(1_000_000, 3), tokens(100, 4)))
    workload = workload_of((0, tokens(0, 6), 3), (10**9, longer, 2), turns=turns)
    config = SchedulerConfig(session_rate=1.0, session_idle_ns=10**13)
    run = run_loop(workload, config)
    assert run.of(SessionRestored) == []
    assert len(run.of(Admitted)) == 1
    assert run.tally.aborts == {"before turn": 1}


def test_a_turn_aborted_in_the_middle_drops_the_session(doom):
    """The third turn is a first turn: it is admitted, as the session's row is gone."""
    doom(Fate.PREFILL, only={1})
    said, requests = tokens(0, 6), []
    for turn in range(3):
        requests.append((turn * 10**9, said, 3))
        said = np.concatenate((said, tokens(1_000_000 * (turn + 1), 3), tokens(100 + turn, 1)))
    turns = Turns(conversation_idx=np.zeros(3, np.int32), turn_idx=np.arange(3, dtype=np.int32))
    config = SchedulerConfig(
        session_rate=1.0, rewind_rate=0.0, close_rate=0.0, session_idle_ns=10**13
    )
    run = run_loop(workload_of(*requests, turns=turns), config)
    names = [type(e).__name__ for e in run.of(Admitted, SessionRestored, Released)]
    assert names == ["Admitted", "SessionRestored", "Released", "Admitted"]
    assert run.tally.completed == 2


def test_the_plan_keeps_to_its_rate():
    """Of 20,000 requests a tenth is doomed, within 6 standard errors, and to each fate alike."""
    plan = AbortPlan(20_000, 0.1, np.random.Generator(np.random.PCG64(1)))
    fates = [plan.fate(idx) for idx in range(20_000)]
    doomed = [fate for fate in fates if fate is not None]
    assert abs(len(doomed) - 2_000) < 255
    for fate in Fate:
        assert abs(doomed.count(fate) - len(doomed) / 5) < 110
    stops = [plan.stop_at(idx, 10) for idx in range(20_000)]
    assert {min(stops), max(stops)} <= set(range(1, 11))
