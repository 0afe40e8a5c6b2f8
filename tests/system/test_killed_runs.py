"""Simulations that are killed at any moment: nothing is lost that was returned, and it replays."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
NUM_KILLS = 200


@pytest.mark.soak
def test_what_a_killed_simulation_leaves_replays_clean(tmp_path, seed):
    """Of 200 simulations killed after a random append, each log has all of it and replays clean."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE)]),
        # A fork copies one thread only, so there must be no other.
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-W", "error", str(HERE / "killed_simulations.py")]
    done = subprocess.run(
        [*command, str(tmp_path), str(NUM_KILLS), str(seed)],
        env=environment, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["trials"] == NUM_KILLS
    assert found["reported"] > 200 * NUM_KILLS
    assert found["events"] >= found["reported"]
    # Snapshots were written and history was cut while the kills came.
    assert found["snapshots"] > NUM_KILLS // 2
    assert found["cut"] > NUM_KILLS // 10
    assert found["closed"] < NUM_KILLS // 4
