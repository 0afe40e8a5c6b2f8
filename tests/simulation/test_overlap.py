"""Overlap scheduling: a step is dispatched before the one in front of it settles."""

from loop_runs import run_loop, tokens, workload_of

from kvlife.events import (
    Allocated,
    Committed,
    Released,
    Retracted,
    SessionSaved,
    StepDispatched,
    StepSettled,
)
from kvlife.simulation import SchedulerConfig

OVERLAP = SchedulerConfig(overlap=True, headroom_tokens=0)


def flight(run):
    """Dispatches and settlings in order, as (D or S, step)."""
    return [
        ("D" if isinstance(event, StepDispatched) else "S", event.step)
        for event in run.of(StepDispatched, StepSettled)
    ]


def test_each_step_is_dispatched_before_the_one_in_front_settles():
    """A prefill and two decode steps of use, and one in vain, as the end is seen a step late."""
    run = run_loop(workload_of((0, tokens(0, 5), 3)), OVERLAP)
    assert flight(run) == [
        ("D", 0), ("D", 1), ("S", 0), ("D", 2), ("S", 1), ("D", 3), ("S", 2), ("S", 3),
    ]  # fmt: skip


def test_only_what_has_settled_is_committed():
    """While step n + 1 writes token 7, step n confirms token 6."""
    run = run_loop(workload_of((0, tokens(0, 5), 3)), OVERLAP)
    assert [event.allocated_len.tolist() for event in run.of(Allocated)] == [[5], [6], [7], [8]]
    assert [event.committed_len.tolist() for event in run.of(Committed)] == [[5], [6], [7]]


def test_a_request_that_ends_in_flight_drains():
    """It is released without pages, and the step that still writes its row lets them go."""
    run = run_loop(workload_of((0, tokens(0, 5), 3)), OVERLAP)
    released = run.of(Released)[0]
    assert released.pages[0].size == 0
    last = run.of(StepSettled)[-1]
    assert last.drained.tolist() == [released.row]
    # 8 tokens were allocated: two pages of 4.
    assert last.pages[0].size == 2


def test_a_step_takes_its_time_between_its_dispatch_and_its_settling():
    """The steps do not get longer by being dispatched early."""
    plain = run_loop(workload_of((0, tokens(0, 5), 3)))
    overlapped = run_loop(workload_of((0, tokens(0, 5), 3)), OVERLAP)
    # One more decode step, that came out of nothing but its late end.
    assert overlapped.clock.now_ns == plain.clock.now_ns + 8_030_000


def test_a_step_that_does_not_fit_waits_for_the_one_in_flight():
    """Whoever is retracted is in no step then, so its pages are free at once."""
    workload = workload_of((0, tokens(0, 4), 6), (0, tokens(100, 4), 6))
    run = run_loop(workload, OVERLAP, page_size=1, num_pages=14)
    assert run.tally.retractions == 1
    assert run.tally.completed == 2
    at = run.names().index("Retracted")
    before = [event for event in run.events[:at] if isinstance(event, StepDispatched | StepSettled)]
    assert {event.step for event in before if isinstance(event, StepDispatched)} == {
        event.step for event in before if isinstance(event, StepSettled)
    }
    retracted = run.of(Retracted)[0]
    assert retracted.pages[0].size > 0


def test_chunks_of_a_prompt_overlap_too():
    """The second chunk is dispatched before the first is confirmed."""
    config = SchedulerConfig(overlap=True, chunk_tokens=4, headroom_tokens=0)
    run = run_loop(workload_of((0, tokens(0, 8), 1)), config)
    assert flight(run)[:3] == [("D", 0), ("D", 1), ("S", 0)]
    assert [event.committed_len.tolist() for event in run.of(Committed)] == [[4], [8]]


def test_a_turn_that_ends_in_flight_is_saved_without_its_last_slot():
    """The session keeps the 7 tokens that are confirmed, of 8 that are allocated."""
    config = SchedulerConfig(overlap=True, session_rate=1.0)
    run = run_loop(workload_of((0, tokens(0, 5), 3)), config)
    assert [event.kept_len for event in run.of(SessionSaved)] == [7]
