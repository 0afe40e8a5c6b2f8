"""Logs damaged at random: an error, or the truth; never a crash, a hang or a wrong answer."""

import pytest
from test_log_survives import run_script


@pytest.mark.soak
def test_damaged_logs_are_told_or_read_rightly(tmp_path, seed, request):
    """Flipped bits, cuts, repeated and swapped records, huge lengths, forged checksums."""
    num = 10_000 if request.config.getoption("hypothesis_profile") == "soak" else 2_000
    found = run_script("mutation_trials.py", tmp_path, num, seed)
    assert found["trials"] == num
    # Each log is read twice, the second time with salvage.
    assert found["error"] + found["told"] + found["whole"] == 2 * num
    assert found["error"] > num // 4
    assert found["told"] > num // 8
