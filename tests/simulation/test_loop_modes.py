"""Every combination of the loop's options, under pressure, to the end."""

import itertools

import pytest
from loop_runs import run_loop

from kvlife.simulation import SchedulerConfig, SyntheticConfig, generate

WORKLOAD = generate(
    SyntheticConfig(
        num_requests=40,
        seed=11,
        max_context_len=4096,
        system_len_median=40,
        user_len_median=30,
        answer_len_median=20,
        conversations_per_s=40.0,
        pause_s_mean=0.5,
    )
)
LONGEST = int((WORKLOAD.prompt_len + WORKLOAD.output_len).max())
MODES = list(itertools.product((False, True), (0, 3), (0.0, 0.5), (0.0, 0.3), (None, 24)))


def mode_name(mode):
    overlap, draft, sessions, aborts, window = mode
    named = {"overlap": overlap, "draft": draft, "sessions": sessions, "aborts": aborts}
    return "-".join(name for name, on in {**named, "window": window}.items() if on) or "plain"


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("mode", MODES, ids=mode_name)
def test_every_request_ends_and_nothing_is_left(mode, page_size):
    """Each request is completed or aborted, each answer counted, and the pools hold only cache."""
    overlap, draft, session_rate, abort_rate, window = mode
    config = SchedulerConfig(
        max_running=16,
        chunk_tokens=128,
        headroom_tokens=0,
        overlap=overlap,
        draft=draft,
        session_rate=session_rate,
        abort_rate=abort_rate,
        session_idle_ns=10**9,
        seed=3,
    )
    num_pages = 6 + (LONGEST + config.reserve_len) // page_size
    run = run_loop(WORKLOAD, config, page_size=page_size, num_pages=num_pages, window=window)
    tally, stats = run.tally, run.engine.stats()
    assert tally.completed + tally.aborts.total() == len(WORKLOAD)
    assert stats.violations == {}
    assert stats.checked["events"] == stats.events == len(run.events)
    if not abort_rate:
        assert tally.output_tokens == WORKLOAD.num_output_tokens
    else:
        assert 0 < tally.aborts.total() < len(WORKLOAD)
    for states in stats.pages.values():
        assert states["PRIVATE"] == states["QUARANTINED"] == 0
    assert stats.rows["HELD"] == stats.rows["DRAINING"] == 0
    assert stats.evicted_pages > 0
    assert run.tape.closed_with == run.engine.ledger.digest()


def test_the_modes_show_what_they_are_for():
    """Together they retract, resume, save, restore and close; else the test above proves little."""
    config = SchedulerConfig(
        max_running=16, headroom_tokens=0, session_rate=0.5, abort_rate=0.3, seed=3,
        session_idle_ns=10**9,
    )  # fmt: skip
    run = run_loop(WORKLOAD, config, page_size=16, num_pages=6 + LONGEST // 16)
    kinds = set(run.names())
    assert {"Retracted", "Resumed", "SessionSaved", "SessionClosed", "Evicted"} <= kinds
