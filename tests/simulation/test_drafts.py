"""Speculative decoding: what is scheduled, confirmed and rolled back."""

import numpy as np
from loop_runs import run_loop, tokens, workload_of

from kvlife.events import Allocated, Committed, RolledBack
from kvlife.simulation import SchedulerConfig
from kvlife.simulation.drafts import DraftLuck


def lens_of(run, kind, field):
    return [getattr(event, field).tolist()[0] for event in run.of(kind)]


def test_all_drafts_right():
    """Of 9 tokens one comes from the prefill and four from each of two steps with 3 drafts."""
    config = SchedulerConfig(draft=3, acceptance=1.0)
    run = run_loop(workload_of((0, tokens(0, 5), 9)), config)
    assert run.tally.steps == 3
    assert lens_of(run, Allocated, "allocated_len") == [5, 9, 13]
    assert lens_of(run, Committed, "committed_len") == [5, 9, 13]
    assert run.of(RolledBack) == []
    assert (run.tally.drafted_tokens, run.tally.accepted_tokens) == (6, 6)


def test_all_drafts_wrong():
    """Each step confirms one token and rolls three back."""
    config = SchedulerConfig(draft=3, acceptance=0.0)
    run = run_loop(workload_of((0, tokens(0, 5), 3)), config)
    assert lens_of(run, Allocated, "allocated_len") == [5, 9, 10]
    assert lens_of(run, Committed, "committed_len") == [5, 6, 7]
    assert lens_of(run, RolledBack, "allocated_len") == [6, 7]
    assert (run.tally.drafted_tokens, run.tally.accepted_tokens) == (6, 0)


def test_drafts_beyond_the_end_are_not_confirmed():
    """An answer of 3 needs two tokens more after the prefill, though four would be right."""
    config = SchedulerConfig(draft=3, acceptance=1.0)
    run = run_loop(workload_of((0, tokens(0, 5), 3)), config)
    assert lens_of(run, Committed, "committed_len") == [5, 7]
    assert run.tally.output_tokens == 3


def test_under_overlap_the_reserve_stays():
    """Each step is scheduled behind twice 4 tokens beyond what is confirmed; none is given back."""
    config = SchedulerConfig(draft=3, acceptance=0.0, overlap=True)
    run = run_loop(workload_of((0, tokens(0, 5), 4)), config)
    # The step behind the prefill knows of 4 tokens before the one that the prefill will confirm.
    assert lens_of(run, Allocated, "allocated_len") == [5, 12, 13, 14, 15]
    assert lens_of(run, Committed, "committed_len") == [5, 6, 7, 8]
    assert run.of(RolledBack) == []


def test_luck_is_drawn_from_the_front():
    """Accepted are the drafts before the first wrong one: with a chance of 1 all, with 0 none."""
    generator = np.random.Generator(np.random.PCG64(1))
    assert DraftLuck(4, 1.0, generator).draw(3).tolist() == [4, 4, 4]
    assert DraftLuck(4, 0.0, generator).draw(3).tolist() == [0, 0, 0]
    drawn = DraftLuck(2, 0.5, generator).draw(20_000)
    # 1/2 have none, 1/4 one, 1/4 two: 0.75 in the mean, within 6 standard errors of 0.0059.
    assert abs(float(drawn.mean()) - 0.75) < 0.035
    assert drawn.dtype == np.int32
