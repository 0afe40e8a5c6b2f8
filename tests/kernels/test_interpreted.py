"""Runs the tests of `interpreted/` and `both/` under Triton's interpreter, a process a file."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FILES = sorted(HERE.glob("interpreted/test_*.py")) + sorted(HERE.glob("both/test_*.py"))


def name_of(path):
    return str(path.relative_to(HERE))


@pytest.mark.soak
@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_kernels_do_under_the_interpreter_what_their_tests_say(path, request, record_property):
    """The tests of a file pass where kernels are interpreted, and there are some."""
    profile = request.config.getoption("hypothesis_profile", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    command += [f"--hypothesis-profile={profile}"] if profile else []
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    # The coordinates of xdist's worker would make the process one too.
    environment = {k: v for k, v in environment.items() if not k.startswith("PYTEST_XDIST")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    if done.returncode or passed is None:
        pytest.fail(
            f"{name_of(path)} under TRITON_INTERPRET=1:\n{done.stdout}{done.stderr}", pytrace=False
        )
    record_property("interpreted", int(passed[1]))


def test_every_file_of_interpreted_tests_is_run():
    """The two folders hold no test that the process above would not reach."""
    held = {path for folder in ("interpreted", "both") for path in (HERE / folder).rglob("*.py")}
    assert {path for path in held if path.name.startswith("test_")} == set(FILES)
    assert FILES
