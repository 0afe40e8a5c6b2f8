"""Starts the scripts that stand beside these tests, each in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def environment():
    """What a process needs to find the modules of this folder."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE)]),
        # Scripts fork, which copies one thread only, so numpy must have no others.
        "OPENBLAS_NUM_THREADS": "1",
    }


def run_script(name, *arguments, timeout=1800):
    """Run a script of this folder with warnings as errors, and return the object it printed."""
    command = [sys.executable, "-W", "error", str(HERE / name), *map(str, arguments)]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False, timeout=timeout
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)
