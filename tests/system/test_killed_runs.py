"""Simulations that are killed at any moment: nothing is lost that was returned, and it replays."""

import pytest
from script_runs import run_script

NUM_KILLS = 200


@pytest.mark.soak
def test_what_a_killed_simulation_leaves_replays_clean(tmp_path, seed):
    """Of 200 simulations killed after a random append, each log has all of it and replays clean."""
    found = run_script("killed_simulations.py", tmp_path, NUM_KILLS, seed)
    assert found["trials"] == NUM_KILLS
    assert found["reported"] > 200 * NUM_KILLS
    assert found["events"] >= found["reported"]
    # Snapshots were written and history was cut while the kills came.
    assert found["snapshots"] > NUM_KILLS // 2
    assert found["cut"] > NUM_KILLS // 10
    assert found["closed"] < NUM_KILLS // 4
