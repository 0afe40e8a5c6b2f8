"""The loop in a pool that is too small: who gives way, and how it comes back."""

import pytest
from loop_runs import run_loop, tokens, workload_of

from kvlife.events import Admitted, Evicted, Protected, Resumed, Retracted, SessionClosed
from kvlife.simulation import SchedulerConfig
from kvlife.simulation.admission import shared_len
from kvlife.simulation.room import Room

OPTIMISTIC = SchedulerConfig(headroom_tokens=0)


def two_that_do_not_fit():
    """Two requests of 4 and 6 tokens, which end with 9 tokens of KV each."""
    return workload_of((0, tokens(0, 4), 6), (0, tokens(100, 4), 6))


def test_the_youngest_is_retracted_and_resumed():
    """In 13 pages of one token two requests of 6 each cannot both grow: the second gives way."""
    run = run_loop(two_that_do_not_fit(), OPTIMISTIC, page_size=1, num_pages=14)
    assert [event.rid for event in run.of(Retracted)] == ["r1"]
    assert [event.rid for event in run.of(Resumed)] == ["r1"]
    tally = run.tally
    assert (tally.completed, tally.retractions, tally.output_tokens) == (2, 1, 12)


def test_what_a_retracted_request_had_computed_is_published_first():
    """It had 6 tokens confirmed; the other one took 2 of them, so it finds 4 again."""
    run = run_loop(two_that_do_not_fit(), OPTIMISTIC, page_size=1, num_pages=14)
    at = run.names().index("Retracted")
    published = run.events[at - 1]
    assert isinstance(published, Protected)
    assert published.protected_len == 6
    assert sum(event.pages[0].size for event in run.events[:at] if isinstance(event, Evicted)) == 0
    # The first grows from 6 to 9 tokens: one page is free, so two are evicted.
    assert run.tally.resumed_hit_tokens == 4
    resumed = run.of(Resumed)[0]
    # Its prompt, and the three tokens that it had generated.
    assert (resumed.prompt_len, resumed.prefix_len) == (7, 4)


def test_headroom_delays_an_admission():
    """With 6 tokens of headroom a request the second waits until the first has ended."""
    config = SchedulerConfig(headroom_tokens=6)
    run = run_loop(two_that_do_not_fit(), config, page_size=1, num_pages=14)
    assert run.tally.retractions == 0
    assert run.tally.completed == 2


def test_headroom_falls_while_nothing_is_retracted():
    """Two times 60 tokens of headroom do not fit; after 32 steps none is asked for any more."""
    config = SchedulerConfig(headroom_tokens=60, headroom_steps=32)
    workload = workload_of((0, tokens(0, 4), 100), (0, tokens(1000, 4), 30))
    run = run_loop(workload, config, page_size=1, num_pages=120)
    steps = [step for _, step, _, event in run.tape.recorded if isinstance(event, Admitted)]
    assert steps == [0, 32]
    assert run.tally.completed == 2


def test_an_idle_session_goes_before_a_request_is_retracted():
    """What an idle session holds is given up first, and then nobody has to be retracted."""
    config = SchedulerConfig(headroom_tokens=0, session_rate=1.0, session_idle_ns=10**12)
    # r0 leaves 9 tokens with its session; r1 needs up to 11 of 13 pages.
    workload = workload_of((0, tokens(0, 4), 6), (10**9, tokens(100, 4), 6))
    run = run_loop(workload, config, page_size=1, num_pages=14)
    closed = run.of(SessionClosed)
    assert closed[0].session_id == "s0"
    assert run.tally.sessions_closed_for_room == 1
    assert run.tally.retractions == 0


def test_pages_are_evicted_for_a_prompt():
    """A prompt that finds the pool full of another's cache takes its place."""
    workload = workload_of((0, tokens(0, 40), 1), (10**9, tokens(100, 40), 1))
    run = run_loop(workload, OPTIMISTIC, page_size=4, num_pages=16)
    # 15 pages: 10 of the first are cached, so the second's 10 need 5 of them.
    assert sum(event.pages[0].size for event in run.of(Evicted)) == 5
    assert run.tally.completed == 2


@pytest.mark.parametrize("draft", [0, 2])
@pytest.mark.parametrize("overlap", [False, True])
def test_a_count_that_is_too_high_costs_a_refusal_and_nothing_else(monkeypatch, overlap, draft):
    """Where pages seem to be there that are not, the engine refuses, and the youngest gives way."""
    monkeypatch.setattr(Room, "holds", lambda _room, _need: True)
    monkeypatch.setattr(Room, "take_free", lambda _room, _num: True)
    config = SchedulerConfig(headroom_tokens=0, overlap=overlap, draft=draft, acceptance=0.5)
    workload = workload_of((0, tokens(0, 4), 6), (0, tokens(100, 4), 6))
    run = run_loop(workload, config, page_size=1, num_pages=18)
    assert run.engine.stats().refusals["OutOfPages"] >= 1
    assert run.tally.retractions >= 1
    assert (run.tally.completed, run.tally.output_tokens) == (2, 12)


def test_the_shared_part_of_two_token_arrays():
    """It ends at the first difference, or with the shorter array."""
    assert shared_len(tokens(0, 5), tokens(0, 9)) == 5
    left, right = tokens(0, 5), tokens(0, 5)
    right[3] = 77
    assert shared_len(left, right) == 3
    assert shared_len(tokens(0, 3), tokens(9, 3)) == 0


def test_with_host_pages_what_is_not_published_is_kept_there():
    """The second has 6 tokens confirmed, 4 of them published: the other 2 go to the host and back.

    The 2 pages that it leaves and the free one are enough for the first to grow by 3.
    """
    run = run_loop(two_that_do_not_fit(), OPTIMISTIC, page_size=1, num_pages=14, host_pages=5)
    (retracted,) = run.of(Retracted)
    assert (retracted.rid, retracted.backup.tolist()) == ("r1", [1, 2])
    assert run.tally.backups == 1
    (resumed,) = run.of(Resumed)
    assert (resumed.prompt_len, resumed.prefix_len, resumed.restored_len) == (7, 4, 6)
    assert (run.tally.completed, run.tally.restored_tokens) == (2, 2)


def test_without_room_on_the_host_what_was_computed_is_published():
    """One host page is too few for 2 tokens of one page each: as without a host."""
    run = run_loop(two_that_do_not_fit(), OPTIMISTIC, page_size=1, num_pages=14, host_pages=2)
    assert run.of(Retracted)[0].backup is None
    assert (run.tally.backups, run.tally.resumed_hit_tokens) == (0, 4)
