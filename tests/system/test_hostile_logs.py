"""Damaged and forged logs of simulated runs, replayed: an error, a finding, or the truth."""

import pytest
from script_runs import run_script


@pytest.mark.soak
def test_no_hostile_log_breaks_or_fools_the_replay(tmp_path, seed, request):
    """Each mutant ends in a clear error, a named finding, or what the run really was."""
    soak = request.config.getoption("hypothesis_profile") == "soak"
    num = 10_000 if soak else 1500
    found = run_script("hostile_logs.py", tmp_path, num, seed)
    # A few forgeries come to nothing, and a few headers ask for pools that are only large.
    assert num * 0.95 < found["trials"] <= num
    for word, least in (
        ("damaged error", 0.2),
        ("damaged harmless", 0.02),
        ("damaged told", 0.02),
        ("forged error", 0.2),
        ("forged violation", 0.02),
        ("forged difference", 0.005),
        ("events violation", 0.05),
        ("events difference", 0.01),
    ):
        assert found[word] > least * num, f"{word}: {found}"
