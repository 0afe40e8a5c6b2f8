"""The loop without pressure: what each step schedules, confirms and publishes, counted by hand."""

import pytest
from loop_runs import run_loop, tokens, workload_of

from kvlife.errors import ConfigError
from kvlife.events import Admitted, Allocated, Committed, Marked, Protected, Released
from kvlife.simulation import SchedulerConfig
from kvlife.simulation.virtual_time import step_ns


def test_a_single_request_goes_through_prefill_and_two_decode_steps():
    """A prompt of 5 and an answer of 3: one prefill, two decode steps, 7 tokens of KV."""
    run = run_loop(workload_of((0, tokens(0, 5), 3)))
    assert run.names() == [
        "Admitted", "Allocated", "Committed", "Protected",
        "Allocated", "Committed", "Allocated", "Committed", "Released", "Marked",
    ]  # fmt: skip
    assert [event.allocated_len.tolist() for event in run.of(Allocated)] == [[5], [6], [7]]
    assert [event.committed_len.tolist() for event in run.of(Committed)] == [[5], [6], [7]]
    assert [event.protected_len for event in run.of(Protected)] == [4]
    tally = run.tally
    assert (tally.completed, tally.steps, tally.prefill_tokens, tally.output_tokens) == (1, 3, 5, 3)


def test_a_step_takes_the_time_of_its_tokens_and_rows():
    """8 ms a step, 12 us a prompt token, 30 us a decoding row."""
    run = run_loop(workload_of((1_000, tokens(0, 5), 3)))
    assert run.clock.now_ns == 1_000 + (8_000_000 + 5 * 12_000) + 2 * (8_000_000 + 30_000)
    assert step_ns(8192, 256) == 8_000_000 + 8192 * 12_000 + 256 * 30_000


def test_events_carry_virtual_times_and_steps():
    """What a step allocates is stamped with its start, what it confirms with its end."""
    run = run_loop(workload_of((0, tokens(0, 5), 2)))
    stamps = [
        (step, time_ns)
        for _, step, time_ns, event in run.tape.recorded
        if isinstance(event, Allocated | Committed)
    ]
    assert stamps == [(0, 0), (0, 8_060_000), (1, 8_060_000), (1, 16_090_000)]
    assert run.tape.header.created_ns == 0


def test_a_shared_prompt_hits_all_but_the_page_of_its_last_token():
    """The second of two equal prompts of 9 locks the 8 tokens that the first has published."""
    prompt = tokens(0, 9)
    run = run_loop(workload_of((0, prompt, 2), (100_000_000, prompt, 2)))
    assert [event.prefix_len for event in run.of(Admitted)] == [0, 8]
    assert (run.tally.hit_tokens, run.tally.prefill_tokens) == (8, 9 + 1)


def test_a_step_computes_no_more_prompt_tokens_than_its_budget():
    """Two prompts of 6 in chunks of 4: the second begins where the first leaves budget."""
    config = SchedulerConfig(chunk_tokens=4, headroom_tokens=0)
    run = run_loop(workload_of((0, tokens(0, 6), 2), (0, tokens(100, 6), 2)), config)
    chunks = [
        (step, event.allocated_len.tolist())
        for _, step, _, event in run.tape.recorded
        if isinstance(event, Allocated)
    ]
    # Step 2 computes the rest of the second prompt, and decodes the first request.
    assert chunks == [(0, [4]), (1, [6, 2]), (2, [6]), (2, [7]), (3, [7])]


def test_first_come_first_served():
    """With room for one, the second begins after the first has ended, though it is shorter."""
    config = SchedulerConfig(max_running=1)
    run = run_loop(workload_of((0, tokens(0, 9), 5), (1, tokens(100, 2), 1)), config)
    order = [(type(event).__name__, event.rid) for event in run.of(Admitted, Released)]
    assert order == [("Admitted", "r0"), ("Released", "r0"), ("Admitted", "r1"), ("Released", "r1")]


def test_requests_decode_together():
    """Two requests that run together share their decode steps."""
    run = run_loop(workload_of((0, tokens(0, 4), 4), (0, tokens(100, 4), 4)))
    assert run.tally.steps == 4
    assert [len(event.rows) for event in run.of(Allocated)] == [2, 2, 2, 2]


def test_the_loop_waits_for_the_next_arrival():
    """Between two requests that do not meet the clock moves on to the second's arrival."""
    run = run_loop(workload_of((0, tokens(0, 4), 1), (5_000_000_000, tokens(100, 4), 1)))
    assert run.clock.now_ns == 5_000_000_000 + 8_000_000 + 4 * 12_000


def test_an_answer_of_one_token_ends_with_its_prefill():
    """The prefill's result is the first token of the answer, so nothing is left to decode."""
    run = run_loop(workload_of((0, tokens(0, 8), 1)))
    assert (run.tally.steps, run.tally.output_tokens) == (1, 1)
    # Published once, as it ends.
    assert [event.protected_len for event in run.of(Protected)] == [8]


def test_a_run_ends_idle():
    """The last event is an idle mark, and only cache is left."""
    run = run_loop(workload_of((0, tokens(0, 9), 3), (0, tokens(50, 9), 3)))
    mark = run.events[-1]
    assert isinstance(mark, Marked)
    assert mark.idle
    # 11 tokens of KV each, of which two whole pages of 4 are published.
    assert run.engine.stats().pages["full"]["CACHED"] == 4


def test_a_pool_that_the_longest_request_does_not_fit_is_refused():
    """The message names the request's tokens and the pages it needs."""
    with pytest.raises(ConfigError, match=r"needs\s+6 pages of 4"):
        # 10 and 3 tokens, and 2 in reserve: 15 tokens are 4 pages, and 2 are kept.
        run_loop(workload_of((0, tokens(0, 10), 3)), num_pages=5)


@pytest.mark.parametrize(
    ("option", "value"),
    [("max_running", 0), ("chunk_tokens", 0), ("draft", -1), ("abort_rate", 1.5), ("seed", True)],
)
def test_options_out_of_bounds_are_refused(option, value):
    """The error names the option, what it is and what it may be."""
    with pytest.raises(ConfigError, match=option):
        SchedulerConfig(**{option: value})
